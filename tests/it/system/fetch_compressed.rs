//! What of `plain::fetch::compressed` needs root or a package: see there.

use crate::plain::fetch::compressed::*;
use crate::plain::fetch::*;
use crate::support::mirrors::{Certificates, Nginx};
use std::fs;

#[test]
fn fetch_gets_metadata_packed_and_targets_as_they_are_signed() {
    let release = Release::new(1);
    let certificates = Certificates::new();
    let nginx = Nginx::start(&release.repo.path(), &certificates, &as_the_guide_says());
    let settings = settings(vec![mirror_with_ca(&nginx.url(), &certificates.file("ca.pem"))]);
    let client = Client::new();
    let files = refresh(&client, &settings, &release).unwrap();
    target_of(&client, &settings, &release).unwrap();
    let frame = *release.frames().last().unwrap();
    assert_eq!(client.frames(&settings, &release, &[frame]).unwrap(), frame.length);
    let seen = nginx.seen(6);
    let sent = |name: &str| -> u64 {
        let line = seen.iter().find(|line| line.split('|').next().unwrap().ends_with(name)).unwrap();
        line.split('|').nth(3).unwrap().parse().unwrap()
    };
    for (name, bytes) in &files {
        let published = fs::read(release.repo.path().join("metadata").join(name)).unwrap();
        assert!(*bytes == published, "{name} is another");
        assert!(sent(name) < bytes.len() as u64 * 9 / 10, "{name}: {} bytes of {}", sent(name), bytes.len());
    }
    assert_eq!(files.len(), 3);
    assert_eq!(sent(".manifest.json.zst"), release.manifest_target.length);
    assert_eq!(sent(".payload.tar.zst"), frame.length);
}

#[test]
fn fetch_asks_for_a_next_root_without_the_page_that_denies_it() {
    let release = Release::new(1);
    let certificates = Certificates::new();
    let nginx = Nginx::start(&release.repo.path(), &certificates, "");
    let settings = settings(vec![mirror_with_ca(&nginx.url(), &certificates.file("ca.pem"))]);
    refresh(&Client::new(), &settings, &release).unwrap();
    let roots = |since: usize, at_least: usize| -> Vec<String> {
        let seen = nginx.seen(since + at_least).into_iter().skip(since);
        let line = |line: String| line.rsplitn(5, '|').last().unwrap().to_owned();
        seen.filter(|line| line.contains("root.json")).map(line).collect()
    };
    assert_eq!(roots(0, 4), ["HEAD /metadata/2.root.json|404"]);
    let page = nginx.seen(4)[0].split('|').nth(3).unwrap().to_owned();
    assert_eq!(page, "0");
    renew_root(&release.repo);
    let since = nginx.seen(4).len();
    assert!(refresh(&Client::new(), &settings, &release).unwrap().contains_key("2.root.json"));
    let wanted = ["HEAD /metadata/2.root.json|200", "GET /metadata/2.root.json|200", "HEAD /metadata/3.root.json|404"];
    assert_eq!(roots(since, 6), wanted);
}
