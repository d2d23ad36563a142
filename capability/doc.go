// Package capability makes and verifies the tokens without which the daemon does
// nothing: who shows a token may do what it says, and nobody may do anything
// because of where they are or who they are.
//
// A service has a [KeyRing] that mints tokens:
//
//	token, err := ring.Mint("",
//		capability.Operations(capability.OpSend, capability.OpRecv),
//		capability.Topics(capability.Topic("orders"), capability.TopicsUnder("user:42:")),
//		capability.ExpiresAt(time.Now().Add(24*time.Hour)))
//
// Whoever has a token can narrow it without asking anybody ([Token.Attenuate]),
// and look at it ([Token.Inspect]). A [Verifier] decides:
//
//	grant, err := verifier.Authorize(ctx, token, capability.Request{
//		Operation: capability.OpSend, Topic: "orders", Load: capability.LoadOf(body),
//	})
//
// Refusals wrap a [Reason]. Everything fails closed: a condition that is unknown,
// that cannot be read, or about which the request says nothing is not met.
//
// # The token
//
// A token is a macaroon in the binary form, version 2, of libmacaroons, so other
// programs for macaroons can read and narrow it. As text it is base64 for URLs
// without padding. In bytes:
//
//	2                       version
//	2 length identifier 0   what the token is
//	2 length caveat 0       a condition, 0…64 times
//	0
//	6 32 signature          32 bytes
//
// Lengths are varints in their shortest form. There is no location and there
// are no third-party caveats. A token has at most 4096 bytes. There is one way
// to write it, and every bit counts.
//
// The identifier is
//
//	1       version of the identifier
//	key     4 bytes, big endian: which key made it
//	id      16 bytes, a ULID: which token it is, and when it was minted
//	tenant  0…64 letters, digits, ".", "_" and "-"
//
// The signature is a chain of HMAC-SHA256:
//
//	root      = HKDF-SHA256(secret of the key, no salt, "mbx-macaroon" + tenant), 32 bytes
//	signature = HMAC(HMAC("macaroons-key-generator", root), identifier)
//	signature = HMAC(signature, caveat), for each caveat
//
// To add a caveat one needs the signature, which one has. To remove one, one
// would need the signature before it, which was replaced.
//
// # Caveats
//
// A caveat is the text mbx:name=value. All must be met, those that were added
// later too; there is no way for a caveat to lift another.
//
//	op=send,recv                 operations: send recv ack nack extend stats peek
//	                             purge dlq admin backup audit; or * for
//	                             all but backup and audit
//	topic=orders,user:42:*       names, or prefixes that end in ":", "/" or "."
//	                             with "*" behind, or * for all; in a name "%", ","
//	                             and "*" are %25, %2C and %2A
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
//	by=(26 characters)           the id of the token that it was minted with: when
//	                             that one is revoked, so is this
//
// Lists are of alternatives. A token without op, topic or exp is refused: it must
// say for what, where and until when it is good. Any other caveat is refused.
//
// Topics are compared byte by byte. A prefix ends at a segment, so "user:4:*" is
// not for "user:42:inbox", and behind it no segment is empty, so "a/*" is not for
// "a/../b", "a//b" or "a/".
//
// Quotas belong to the token that they were added to and to everything narrowed
// from it, together: narrowing a token into many gives no more. A second's worth
// can be used at once, and a batch is let through whole if anything is left;
// what it takes too much is taken from what follows. Settling and extending is
// never held up. Each verifier counts for itself: behind three processes a token
// has three times its quota.
//
// # Time
//
// Expiry is strict. A verifier never goes back in time: if the wall clock is
// turned back, it goes on from the latest time that it has seen. Verified tokens
// are remembered for 30 seconds (5 to 120) of a clock that nobody can turn; how
// long they are good is looked at for every request.
//
// # Revocation
//
// A token is revoked by its id, with all that was narrowed from it and all that
// says it was minted with it (by). A narrowed token has an id of its own too
// ([Token.NarrowedID]), by which it is revoked without the token that it was narrowed
// from: the first 16 bytes, the first of them set to 0xff, of the SHA-256 of
// "mailbox narrowed token 1", the minted id, and for each caveat its length as a
// varint and its text. Also revoked are all tokens of
// a tenant minted so far; or all tokens of a key, by retiring it. What this
// process knows counts at once, what others know within the time that tokens are
// remembered. The ack of a delivery that was taken before is honoured until the
// token expires by itself ([Request.Lease]).
//
// [FileRevocations] keeps them in a file of lines of 128 bytes:
//
//	checksum text spaces newline
//
// The checksum is CRC-32C of the rest of the line, in 8 hex digits. The text of
// the first line is "mailbox revocations 1"; that of the others is
//
//	token id at until [share]
//	tenant name at until
//
// with times in Unix milliseconds, until 0 for entries that are kept for ever, and
// the share in 16 hex digits for entries that count against one.
// Lines are appended and synced. A part of a line at the end, or zeros instead of
// it, is what a crash leaves; any other damage makes the file unreadable, because
// a token must not become good again by accident. The file is written anew, and
// renamed into place, when most of it is of no use any more: because what was
// revoked has expired, or because all keys of that time have been retired
// ([KeyRing.AcceptsSince]), each a day ago.
//
// # Keys
//
// [KeyRing.WriteFile] writes a file for its owner only: "mailbox keys 1", a line
// for each key (id, secret in hex, when it was retired in Unix milliseconds or
// 0, when it was made if that is known), the current key first, and CRC-32C of all
// that in 8 hex digits. [ChangeKeyFile] changes it while no other process does.
// [Token.WriteFile] does the same for a token: its text and a newline.
//
// # Secrets
//
// [Token], [Key], [KeyRing] and [Secret] print and encode as a name in brackets,
// whatever the verb, logger or encoder, and when a program panics with them. What
// is secret leaves by methods called Reveal, and by WriteFile. Comparisons of
// secrets take constant time.
//
// # AWS
//
// Clients of AWS get a token as [Credentials]: the access key id is "MBX" and key
// and id in base32, the session token is the token up to its signature as base64
// for URLs, and the secret access key is the signature in base64. The service
// computes the signature from the session token and checks the client's against
// it ([Verifier.AuthorizeSigned]).
package capability
