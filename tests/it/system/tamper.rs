//! What of `plain::tamper` takes long: see there.

use crate::plain::tamper::tamper_with;

#[test]
fn tamper_with_two_thousand_bytes() {
    tamper_with(2_000);
}

#[test]
#[ignore = "`scripts/test --long`: the same with more bytes"]
fn tamper_with_five_thousand_bytes() {
    tamper_with(5_000);
}
