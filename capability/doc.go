// Package capability makes, narrows and reads the tokens that the daemon demands
// for every operation. A request is allowed because of the token that it carries,
// never because of the address or the user that it comes from.
//
// The daemon mints tokens, from the command line (mailbox cap mint) or over its protocols. A
// program reads one from a file ([ReadTokenFile]) or from text ([Parse]).
//
// The holder of a token can narrow it without a key and without a server
// ([Token.Narrow], which macaroons call attenuation), and can read what it
// allows ([Token.Inspect]). The daemon decides about requests.
//
// Refusals wrap a [Reason]. Everything fails closed: a caveat that is unknown or
// malformed, or that needs a fact that the request does not state, is not met.
//
// # The token
//
// A token is a macaroon in the binary form, version 2, of libmacaroons, so other
// programs for macaroons can read and narrow it. As text it is base64 for URLs
// without padding. In bytes:
//
//	2                       version
//	2 length identifier 0   key, id and tenant of the token
//	2 length caveat 0       a caveat, 0…64 times
//	0
//	6 32 signature          32 bytes
//
// Lengths are varints in their shortest form. There is no location and there
// are no third-party caveats. A token has at most 4096 bytes. Each token has
// exactly one encoding, and every bit of it is significant.
//
// The identifier is
//
//	1       version of the identifier
//	key     4 bytes, big endian: id of the key that signed the token
//	id      16 bytes, a ULID: id of the token, with the time it was minted
//	tenant  0…64 letters, digits, ".", "_" and "-"
//
// The signature is a chain of HMAC-SHA256:
//
//	root      = HKDF-SHA256(secret of the key, no salt, "mbx-macaroon" + tenant), 32 bytes
//	signature = HMAC(HMAC("macaroons-key-generator", root), identifier)
//	signature = HMAC(signature, caveat), for each caveat
//
// Adding a caveat needs only the current signature, which the holder has.
// Removing one needs the signature before it, which the token no longer
// contains.
//
// # Caveats
//
// A caveat is the text mbx:name=value. All caveats must be met, whether added by
// the minter or by a holder; no caveat can lift another.
//
//	op=send,recv                 operations: send recv ack nack extend stats peek
//	                             purge dlq admin backup audit ask answer
//	                             throttle; or * for all but backup, audit, ask,
//	                             answer and throttle
//	topic=orders,user:42:*       names of queues, or prefixes that end in ":", "/"
//	                             or "." followed by "*", or * for all; in a name
//	                             "%", "," and "*" are %25, %2C and %2A
//	tenant=acme                  requests for this tenant
//	exp=2026-01-02T03:04:05Z     refused from then on, to the second
//	nbf=2026-01-02T03:04:05Z     refused before, with two minutes of grace
//	quota=msgs/s:100             messages per second, sent and received
//	quota=bytes/s:65536          bytes of bodies per second, sent and received
//	max_body=65536               bytes of a body that is sent
//	net=10.0.0.0/8,::1/128       the network of the client
//	peer=spiffe://example.org/w  the certificate of the client
//	aud=eu1,eu2                  the name of the service
//	receipt=(64 hex digits)      SHA-256 of the receipt of the one delivery that
//	                             may be settled or extended
//	slot=(64 hex digits)         SHA-256 of the id of the one reply slot that may be used
//	by=(26 characters)           id of the token that this one was minted with:
//	                             revoking that token revokes this one
//
// A list means "one of these". Every token must name its operations, its queues and
// its expiry; without these caveats it is refused. So is a token with a caveat of any
// other name.
//
// Names of queues are compared byte by byte. A prefix ends at a segment, so
// "user:4:*" does not match "user:42:inbox". No segment after the prefix may be
// empty, so "a/*" does not match "a/../b", "a//b" or "a/".
//
// A quota belongs to the token that it was added to, together with every token
// narrowed from that one: narrowing a token into many does not multiply its
// quota. One second's worth can be used at once. A batch is allowed whole if any
// of the quota is left, and its excess delays the requests after it. Settling and
// extending are never delayed. Each verifier counts on its own: behind three
// processes a token has three times its quota.
//
// # Time
//
// Expiry is strict. A verifier's time never goes back: if the wall clock is set
// back, the verifier continues from the latest time that it has seen. It
// remembers verified tokens for 30 seconds (5 to 120) of monotonic time, and
// checks expiry on every request.
//
// # Revocation
//
// Revoking a token by its id also revokes all tokens narrowed from it and all
// tokens that name it as the one they were minted with (by). A narrowed token has
// an id of its own too ([Token.NarrowedID]), by which it is revoked without the
// token that it was narrowed from: the first 16 bytes, the first of them set to
// 0xff, of the SHA-256 of "mailbox narrowed token 1", the minted id, and for each
// caveat its length as a varint and its text. One revocation can also cover all
// tokens of a tenant minted so far; retiring a key ends all tokens of that key.
// Revocations made in this process take effect at once, those of other processes
// within the time that tokens are remembered. The ack of a delivery received
// before the revocation is honoured until the token expires.
//
// # Secrets
//
// A [Token] prints and encodes as a name in brackets,
// whatever the verb, logger or encoder, and when a program panics with it.
// Secret bytes leave the package only through methods called Reveal and through
// WriteFile. Secrets are compared in constant time.
//
// # AWS
//
// Clients of AWS get a token as credentials (mailbox cap aws): the access key id is "MBX" and key
// and id in base32, the session token is the token up to its signature as base64
// for URLs, and the secret access key is the signature in base64. The daemon
// computes the signature from the session token and checks the client's against
// it.
package capability
