package capability

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"iter"
)

// narrowedMark is the first byte of the id of a narrowed token. The id of a minted
// one begins with the time, and has this byte in about 7,900 years.
const narrowedMark = 0xff

// IsNarrowed reports whether id is one that [Token.NarrowedID] returned. Its text
// begins with "7Z".
func (id TokenID) IsNarrowed() bool { return id[0] == narrowedMark }

// NarrowedID names this token and everything that was narrowed from it, but not what
// it was narrowed from: revoking it leaves that token and its other descendants good.
// It is a hash of the minted id and all caveats, so two tokens that were narrowed in
// the same way from the same one are the same token. It is not secret. The zero Token
// has the zero TokenID.
func (t Token) NarrowedID() TokenID {
	var m macaroon
	if !m.parse(t.binary.bytes()) {
		return TokenID{}
	}
	var last TokenID
	for id := range narrowedIDs(t.ID(), &m, m.count) {
		last = id
	}
	return last
}

// narrowedIDs yields the narrowed ids of a minted token with the first caveat of m, with
// its first two, and so on up to count of them.
func narrowedIDs(minted TokenID, m *macaroon, count int) iter.Seq[TokenID] {
	return func(yield func(TokenID) bool) {
		hash := sha256.New()
		hash.Write([]byte("mailbox narrowed token 1"))
		hash.Write(minted[:])
		var length, sum [sha256.Size]byte
		for i := range count {
			caveat := m.caveat(i)
			hash.Write(binary.AppendUvarint(length[:0], uint64(len(caveat))))
			hash.Write(caveat)
			id := TokenID(hash.Sum(sum[:0])[:16])
			id[0] = narrowedMark
			if !yield(id) {
				return
			}
		}
	}
}

// askNarrowed makes the verdict void if the token, or one that it was narrowed from, was
// revoked by its narrowed id. The same goes for the tokens that it was minted with: what
// they mint begins with their caveats, which is why their narrowed ids are known here.
func (v *Verifier) askNarrowed(ctx context.Context, known *verdict, m *macaroon) error {
	// Revocations that can tell that there are none save the hashes.
	if r, ok := v.options.Revocations.(interface{ RevokesNarrowed() bool }); ok && !r.RevokesNarrowed() {
		return nil
	}
	ask := func(minted TokenID, count int) error {
		for id := range narrowedIDs(minted, m, count) {
			if err := v.askRevocation(ctx, known, id, ""); err != nil {
				return err
			}
		}
		return nil
	}
	err := ask(known.grant.ID(), m.count)
	for _, maker := range known.grant.scope.makers {
		if err == nil {
			err = ask(maker.token, maker.caveats)
		}
	}
	return err
}
