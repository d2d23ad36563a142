package capability

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/mailboxmq/mailbox/driver"
)

// Narrow returns a token with further caveats. It needs neither a key nor a
// server. All caveats of a token must be met, so each can only narrow what it
// allows; the wider token cannot be recovered from the narrowed one.
//
// The error is ErrInvalid for an invalid caveat or the zero Token, and
// ErrTooLarge if the token would exceed MaxTokenBytes or maxCaveats.
func (t Token) Narrow(caveats ...Caveat) (Token, error) {
	var m macaroon
	if !m.parse(t.binary.bytes()) {
		return Token{}, invalid("token", "is empty")
	}
	c := chain(m.signature)
	return extend(m.body, m.count, &c, caveats)
}

// extend adds caveats to a token of which it gets the body, the number of
// caveats, and the signature chain. It changes the chain.
func extend(body []byte, count int, c *chain, caveats []Caveat) (Token, error) {
	size := len(body) + 2 + signatureBytes
	for _, caveat := range caveats {
		if err := caveat.check(); err != nil {
			return Token{}, err
		}
		size += 1 + lengthBytes(len(caveat.text)) + len(caveat.text) + 1
	}
	if count+len(caveats) > maxCaveats || size > MaxTokenBytes {
		return Token{}, &driver.Error{
			Code: driver.ErrTooLarge, Op: "capability", Field: "token",
			Detail: fmt.Sprintf("%d caveats and %d bytes, at most %d and %d are allowed", count+len(caveats), size, maxCaveats, MaxTokenBytes),
		}
	}
	binary := append(make([]byte, 0, size), body[:len(body)-1]...) // without the mark that ends the caveats
	for _, caveat := range caveats {
		binary = appendSection(binary, []byte(caveat.text))
		c.add([]byte(caveat.text))
	}
	binary = append(binary, fieldEnd)
	return Token{seal(appendSignature(binary, (*[signatureBytes]byte)(c)))}, nil
}

// narrowedMark is the first byte of the id of a narrowed token. The id of a minted
// token begins with the time, which reaches this byte in about 7,900 years.
const narrowedMark = 0xff

// IsNarrowed reports whether [Token.NarrowedID] returned id. The text of such an
// id begins with "7Z".
func (id TokenID) IsNarrowed() bool { return id[0] == narrowedMark }

// NarrowedID returns an id that stands for this token and all tokens narrowed from
// it, but not for the token that it was narrowed from: revoking it leaves that token
// and its other descendants valid. It is a hash of the minted id and all caveats, so
// two tokens narrowed in the same way from the same token are the same token. It is
// not secret. The zero Token has the zero TokenID.
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

// askNarrowed makes the verdict void if the token, or a token that it was narrowed
// from, was revoked by its narrowed id. It checks the tokens that it was minted with
// too: a minted token begins with the caveats of its minter, so the narrowed ids of
// the minter can be computed here.
func (v *Verifier) askNarrowed(ctx context.Context, known *verdict, m *macaroon) error {
	// The hashes are not needed if no narrowed token is revoked.
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
	for _, minter := range known.grant.scope.minters {
		if err == nil {
			err = ask(minter.token, minter.caveats)
		}
	}
	return err
}
