"""What a new minor version of Python changes for a minion, and sidle leaves as it is: docs/pythons.md tells administrators of it."""

import pathlib
import shutil
import ssl
import subprocess
import sys
import tempfile
import unittest

EXTENSIONS = """\
[authority]
basicConstraints = critical, CA:TRUE
subjectKeyIdentifier = hash
[authority_with_usage]
basicConstraints = critical, CA:TRUE
subjectKeyIdentifier = hash
keyUsage = critical, keyCertSign, cRLSign
[server]
basicConstraints = CA:FALSE
subjectAltName = DNS:localhost
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""
STRICT_SINCE = (3, 13)


@unittest.skipUnless(shutil.which("openssl"), "makes certificates with openssl, which is not installed")
class TestAuthorities(unittest.TestCase):
    """TLS with an authority of one's own."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        (self.directory / "extensions").write_text(EXTENSIONS, encoding="utf-8")
        self.make("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "authority.key")
        self.make("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "server.key")

    def make(self, *arguments):
        """Run openssl."""
        subprocess.run(["openssl", *arguments], cwd=self.directory, check=True, capture_output=True)

    def certificates(self, extensions):
        """The certificate of an authority with these extensions, and one that it gives to a server."""
        self.make("req", "-new", "-key", "authority.key", "-subj", "/CN=authority", "-out", "authority.csr")
        self.make("x509", "-req", "-in", "authority.csr", "-signkey", "authority.key", "-days", "2", "-extfile", "extensions", "-extensions", extensions,
                  "-out", "authority.pem")
        self.make("req", "-new", "-key", "server.key", "-subj", "/CN=localhost", "-out", "server.csr")
        self.make("x509", "-req", "-in", "server.csr", "-CA", "authority.pem", "-CAkey", "authority.key", "-set_serial", "2", "-days", "2",
                  "-extfile", "extensions", "-extensions", "server", "-out", "server.pem")

    def greet(self):
        """A client that trusts the authority greets the server, in memory."""
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(self.directory / "server.pem", self.directory / "server.key")
        client = ssl.create_default_context(cafile=str(self.directory / "authority.pem"))
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        ends = [client.wrap_bio(back, there, server_hostname="localhost"), server.wrap_bio(there, back, server_side=True)]
        while ends:
            for end in list(ends):
                try:
                    end.do_handshake()
                    ends.remove(end)
                except ssl.SSLWantReadError:
                    continue

    def test_an_authority_without_key_usage_serves_up_to_3_12_and_one_that_has_it_with_each(self):
        """Python 3.13 asks for what RFC 5280 asks for."""
        self.certificates("authority_with_usage")
        self.greet()
        self.certificates("authority")
        if sys.version_info < STRICT_SINCE:
            self.greet()
        else:
            with self.assertRaisesRegex(ssl.SSLCertVerificationError, "CA cert does not include key usage extension"):
                self.greet()
