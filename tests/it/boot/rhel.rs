//! Portable trees on a host that is laid out as RHEL is, as far as it can be made of what is here: RHEL 7's C library below /usr/lib64 and no cache of its
//! loader, sidle from its rpm, certificates in /etc/pki alone, and the labels of a real SELinux policy. No kernel of RHEL's, and none of its programs.

use super::portable::{LONG_TERM_RELEASES, configure, packed, there_and_back};
use crate::support::labels;
use crate::support::minions::LONG_TERM;
use crate::support::mirrors::{Certificates, Nginx};
use crate::support::oldest::Oldest;
use crate::support::release::release_file;
use crate::support::salt::{Master, tree};
use crate::support::scene::MASTER;
use crate::support::stage::{Author, SALT, text};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The directories of `scripts/old-root` move below /usr, as since RHEL 7; what Debian's tools put there besides goes.
const LAYOUT: &str = r#"cd "$1"
mkdir -p usr/sbin usr/lib usr/lib64 var/lib/rpm etc/pki/tls/certs etc/pki/ca-trust/extracted/pem
for name in bin lib lib64 sbin; do
    [ ! -d $name ] || { cp -a $name/. usr/$name/ && rm -r $name; }
    ln -s usr/$name $name
done
rm -rf etc/ssl usr/share/ca-certificates etc/ld.so.cache
printf 'NAME="Red Hat Enterprise Linux Server"\nID="rhel"\nVERSION_ID="7.9"\nPRETTY_NAME="Red Hat Enterprise Linux Server 7.9 (Maipo)"\n' >etc/os-release
echo 'Red Hat Enterprise Linux Server release 7.9 (Maipo)' >etc/redhat-release
ln -s ../../ca-trust/extracted/pem/tls-ca-bundle.pem etc/pki/tls/certs/ca-bundle.crt
ln -s certs/ca-bundle.crt etc/pki/tls/cert.pem"#;
/// Where `update-ca-trust` writes what the host trusts.
const TRUSTED: &str = "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem";
const PAGE: &str = "a page behind TLS";
/// What the tree loads by name, and where that lies in the end.
const LOADED: &str = "import ctypes, ctypes.util, sys
for name in ('crypto', 'ssl', 'z'):
    found = ctypes.util.find_library(name)
    ctypes.CDLL(found)
    assert found.startswith(sys.prefix + '/lib/'), (name, found)
import salt.utils.rsax931, ssl
salt.utils.rsax931.RSAX931Verifier
mapped = {line.split()[-1] for line in open('/proc/self/maps') if '.so' in line}
print('\\n'.join(sorted(mapped)))
";

fn oldest_like_rhel() -> Oldest {
    let oldest = Oldest::new();
    let laid = Command::new("sh").args(["-ec", LAYOUT, "sh", text(oldest.root())]).output().unwrap();
    assert!(laid.status.success(), "{laid:?}");
    labels::give(oldest.root(), &labels::policy(), "enforcing");
    let mut rpm = Command::new("rpm");
    rpm.args(["--root", text(oldest.root()), "--define", "_dbpath /var/lib/rpm", "-U", "--nodeps", "--nosignature"]);
    let installed = rpm.arg(release_file("rpm")).output().unwrap();
    assert!(installed.status.success(), "{installed:?}");
    oldest
}

/// What sidle has installed is labelled as libselinux would label it.
fn has_the_labels_of_the_policy(oldest: &Oldest, release: &str) {
    let versions = format!("opt/sidle/{SALT}/versions/{release}");
    let (tree, mut inside) = (oldest.root().join(&versions), BTreeMap::new());
    labels::walk(&tree, Path::new(""), &mut inside);
    let paths: BTreeMap<String, &str> =
        inside.iter().map(|(path, kind)| (format!("/{versions}/{path}"), *kind)).collect();
    let told = labels::told(&labels::policy(), &paths);
    let kinds: BTreeSet<&String> = told.values().collect();
    assert!(told.len() == inside.len() && told.len() > 5000 && kinds.len() > 1, "{} {kinds:?}", told.len());
    let differ =
        |(path, wanted): &(&String, &String)| labels::label(&oldest.root().join(&path[1..])).as_ref() != Some(wanted);
    let differ: Vec<_> = told.iter().filter(differ).take(20).collect();
    assert!(differ.is_empty(), "{differ:?}");
    println!("{release}: {} files have the labels of the policy, {kinds:?}", told.len());
}

/// A page over TLS, by the release's Python and by Salt: only with the authority in RHEL's own place.
fn tls_trusts_what_rhel_trusts(oldest: &Oldest, release: &str) {
    let (certificates, place) = (Certificates::new(), tempfile::tempdir().unwrap());
    fs::write(place.path().join("page"), PAGE).unwrap();
    let nginx = Nginx::start(place.path(), &certificates, "");
    let page = format!("{}/page", nginx.url().trim_end_matches('/'));
    let get = format!("import urllib.request; print(urllib.request.urlopen({page:?}, timeout=20).read().decode())");
    let by_python = ["sidle", "run", SALT, "--release", release, "python3", "--", "-c", &get];
    let by_salt = ["sidle", "run", SALT, "--release", release, "salt-call", "--", "--local", "http.query", &page];
    let bundle = oldest.root().join(TRUSTED);
    fs::copy(Certificates::new().file("ca.pem"), &bundle).unwrap();
    let (is_done, said) = oldest.try_inside(&by_python);
    assert!(!is_done && said[1].contains("CERTIFICATE_VERIFY_FAILED"), "another authority: {said:?}");
    assert!(!oldest.try_inside(&by_salt).1[0].contains(PAGE));
    fs::copy(certificates.file("ca.pem"), &bundle).unwrap();
    assert_eq!(oldest.inside(&by_python).trim(), PAGE);
    let said = oldest.inside(&by_salt);
    assert!(said.contains(PAGE), "{said}");
}

/// Each library is the tree's own, but for those of the C library; what the loader's cache would know is not needed.
fn libraries_are_the_trees_own(oldest: &Oldest, release: &str) {
    let mapped = oldest.inside(&["sidle", "run", SALT, "--release", release, "python3", "--", "-c", LOADED]);
    let of_the_host: Vec<&str> = mapped.lines().filter(|line| !line.starts_with("/opt/sidle/")).collect();
    assert!(mapped.contains("/lib/libcrypto.so.3") && !of_the_host.is_empty(), "{mapped}");
    let is_of_glibc = |line: &&&str| {
        let name = Path::new(**line).file_name().unwrap().to_str().unwrap();
        line.starts_with("/usr/lib64/") && name.contains("-2.17.so")
    };
    assert_eq!(of_the_host.iter().filter(is_of_glibc).count(), of_the_host.len(), "{of_the_host:?}");
    assert!(!oldest.root().join("etc/ld.so.cache").exists() && !oldest.root().join("etc/ssl").exists());
}

#[test]
#[ignore = "`scripts/test --long`: two Pythons and their libraries are compiled"]
fn portable_releases_serve_on_a_host_that_is_laid_out_as_rhel_is() {
    let author = Author::new();
    let bundles = packed(&author, LONG_TERM);
    let master = Master::start(&tree(MASTER), true);
    let mut oldest = oldest_like_rhel();
    let marks = configure(oldest.root(), &master);
    oldest.install(&author, &bundles);
    for release in LONG_TERM_RELEASES {
        has_the_labels_of_the_policy(&oldest, release);
    }
    oldest.supervise();
    for bundle in &bundles {
        fs::copy(bundle, oldest.root().join("srv/release.sidle")).unwrap();
        let tried = oldest.inside(&["sidle", "try", "/srv/release.sidle"]);
        assert!(tried.contains("works  salt-call --local test.ping: local: True"), "{tried}");
    }
    there_and_back(
        ("switches on a host like RHEL", 2),
        LONG_TERM_RELEASES,
        &|words| oldest.inside(words),
        &master,
        &marks,
    );
    for release in LONG_TERM_RELEASES {
        tls_trusts_what_rhel_trusts(&oldest, release);
        libraries_are_the_trees_own(&oldest, release);
    }
    let family = oldest.inside(&["sidle", "run", SALT, "salt-call", "--", "--local", "grains.get", "os_family"]);
    assert!(family.contains("RedHat"), "{family}");
}
