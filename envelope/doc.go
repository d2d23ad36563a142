// Package envelope adds to a message what its receiver needs to
// check that it is the message that was sent: hashes, an optional signature,
// and the JSON form that the daemon uses.
//
// A sender, or the daemon on its behalf, seals an envelope; a receiver verifies
// it:
//
//	sent := envelope.Envelope{Queue: "orders", SentAt: time.Now(), DedupKey: "order-7"}
//	err := sent.Seal(body)
//	…
//	err = received.Verify(body) // ErrIntegrity if anything was changed
//
// # The envelope
//
// In JSON an envelope is one object. All fields but sig are always present, and
// in this order when this package writes them:
//
//	msg_id        string: the id of the message, a ULID on the backends of this module
//	topic         string: the name of the queue
//	ts            string: when it was sent, UTC with milliseconds,
//	              "2026-01-02T03:04:05.678Z" and no other form
//	idem_key      string: the dedup key; "" if there is none
//	payload_hash  string: "b3:" and 64 hex digits
//	attrs         object of strings
//	corr_id       string: follows the message through logs; a UUIDv7 if the daemon made it
//	shard         number: the shard of the queue
//	attempt       number: the number of the delivery, from 1; 0 before the first
//	hash_chain    string: "b3:" and 64 hex digits
//	sig           string, optional: "ed25519:" and 128 hex digits
//
// A delivery ([Delivery]) is the same object with two more fields:
//
//	payload_b64   string: the body, base64 with padding
//	receipt       string: identifies this delivery when it is settled
//
// Reading is strict: a field that is unknown, missing, given twice, written in
// other case or of another type is refused, and so are text that is not valid
// UTF-8, halves of surrogate pairs, upper-case hex digits and anything after
// the object. Each value has exactly one encoding, so that what was
// hashed can always be derived from what was received.
//
// # The body hash
//
// payload_hash is the BLAKE3 hash of the body, 256 bits, unkeyed. The body
// is hashed as bytes, before base64.
//
// # The hash chain
//
// hash_chain binds the body to the other fields. It is the BLAKE3 hash of
//
//	tag      19 letters and a newline: "mailbox envelope v1\n"
//	topic    as text
//	ts       as text, as in the JSON
//	idem_key as text
//	payload_hash as text, with "b3:"
//	n        the number of attributes: 4 bytes, big endian
//	n times  key as text, value as text, sorted by the bytes of the keys
//
// where "as text" is the length in bytes (4 bytes, big endian) followed by the
// UTF-8 bytes. No two different envelopes have the same such sequence. It is
// computed when the message is sent and never changed.
//
// The other fields are not covered: msg_id, corr_id, shard and attempt are set
// or changed by the queue after the message was sealed. They describe where the
// message is, not what it is.
//
// # The signature
//
// A hash protects against damage; an attacker that can change a message can also hash it
// again. A signature protects against that. It is Ed25519 over
//
//	tag      "mailbox envelope signature v2\n"
//	chain    the 32 bytes of hash_chain
//	reply_to as text; "" if there is none
//	group    as text; "" if there is none
//	corr_id  as text: the one that the sender gave, "" if it gave none
//
// and is in sig. This is version 2. Version 1 was over
//
//	tag      "mailbox envelope signature v1\n"
//	chain    the 32 bytes of hash_chain
//
// which does not protect reply_to, group and corr_id. Only the signature
// itself shows the version: it verifies as one of them, or not at all.
// [Envelope.VerifySigned] returns which. [Envelope.Verify] demands a signature exactly
// when it is given keys to check it with, and accepts both.
//
// # Freshness
//
// A signature stays valid as long as the key. Three things keep a message from
// being used a second time: ts, which is signed, must not be much older than the time
// at which the queue accepted the message ([Envelope.CheckFresh]); within that time the
// queue accepts the same idem_key once, so version 2 demands one; and a sender can set the
// attribute "mailbox.expires", in the form of ts.
//
// # Test vectors
//
// testdata/vectors.json contains envelopes with the bytes that were hashed, the
// hashes, and signatures of version 1, for implementations in other languages.
// testdata/vectors2.json contains signatures of version 2 with the bytes that were signed.
package envelope
