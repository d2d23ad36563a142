"""Adds caveats to a token, or tries something that must not work, with pymacaroons.

Reads the token from the standard input. Arguments are what to do with it, and caveats.
"""
import base64
import sys

from pymacaroons import Macaroon

token = Macaroon.deserialize(sys.stdin.read().strip())
what, caveats = sys.argv[1], sys.argv[2:]
if what == "add":
    for caveat in caveats:
        token.add_first_party_caveat(caveat)
elif what == "drop":
    token.caveats = token.caveats[:-1]
elif what == "reorder":
    token.caveats = token.caveats[::-1]
elif what == "append without signing":
    signature = token.signature_bytes
    for caveat in caveats:
        token.add_first_party_caveat(caveat)
    token.signature = signature
elif what == "mint":
    token = Macaroon(identifier=token.identifier_bytes, key="a guess", version=2)
    for caveat in caveats:
        token.add_first_party_caveat(caveat)
else:
    sys.exit("what?")

# pymacaroons writes a location, empty if there is none. Tokens have none, and one
# that has is refused, so it is taken out: it is not part of what is signed.
text = token.serialize()
binary = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
if binary[1:3] == b"\x01\x00":
    binary = binary[:1] + binary[3:]
print(base64.urlsafe_b64encode(binary).rstrip(b"=").decode())
