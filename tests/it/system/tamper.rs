//! What of `plain::tamper` takes long: see there.

use crate::plain::tamper::tamper_with;

#[test]
fn tamper_with_five_thousand_bytes() {
    tamper_with(5_000);
}
