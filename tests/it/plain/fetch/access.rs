//! Who is let in, who is believed, and where a mirror may send us.

use super::*;
use crate::support::mirrors::Handmade;
use std::os::unix::fs::PermissionsExt as _;

pub fn secret(client: &Client, name: &str, text: &str) -> PathBuf {
    let path = client.cache.path().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn fetch_goes_through_a_proxy_of_the_settings() {
    let release = Release::new(1);
    let root = release.repo.path();
    let proxy = Handmade::new(move |asked, line| {
        let path = asked.path.strip_prefix("http://repo.invalid/").unwrap();
        line.serve(asked, fs::read(root.join(path)).ok().as_deref());
    });
    let settings = DownloadSettings {
        proxy: Proxy::Through(proxy.url().parse().unwrap()),
        ..settings(vec![mirror("http://repo.invalid")])
    };
    assert!(target_of(&Client::new(), &settings, &release).is_ok());
    assert!(proxy.heads()[0].to_lowercase().contains("accept-encoding: identity"));
}
