"""Adds caveats to a token, or tries something that must not work, with pymacaroons.

Reads the token from the standard input. Arguments are what to do with it, and caveats.
"""
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

print(token.serialize())
