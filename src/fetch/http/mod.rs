//! How a mirror answers: locations, requests, replies, and their bytes.

pub(in crate::fetch) mod credentials;
pub(in crate::fetch) mod directory;
pub(in crate::fetch) mod fault;
pub(in crate::fetch) mod inflate;
pub(in crate::fetch) mod location;
pub(in crate::fetch) mod reply;
pub(in crate::fetch) mod stdio;
pub(in crate::fetch) mod stream;
pub(in crate::fetch) mod transport;
