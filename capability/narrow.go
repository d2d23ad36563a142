package capability

import (
	"fmt"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// Narrow returns a token with further caveats. It needs neither a key nor a
// server. All caveats of a token must be met, so each can only narrow what it
// allows; the wider token cannot be recovered from the narrowed one.
//
// The error is ErrInvalid for an invalid caveat or the zero Token, and
// ErrTooLarge if the token would exceed 4096 bytes or 64 caveats.
func (t Token) Narrow(caveats ...Caveat) (Token, error) {
	var m macaroon.Macaroon
	if !m.Parse(t.binary.Bytes()) {
		return Token{}, invalid("token", "is empty")
	}
	c := macaroon.Chain(m.Signature)
	return extend(m.Body, m.Count, &c, caveats)
}

// extend adds caveats to a token of which it gets the body, the number of
// caveats, and the signature chain. It changes the chain.
func extend(body []byte, count int, c *macaroon.Chain, caveats []Caveat) (Token, error) {
	texts := make([]string, len(caveats))
	for i, caveat := range caveats {
		if err := caveat.Check(); err != nil {
			return Token{}, err
		}
		texts[i] = caveat.text
	}
	count += len(caveats)
	if size := macaroon.Size(body, texts); count > macaroon.MaxCaveats || size > macaroon.MaxBytes {
		return Token{}, &driver.Error{
			Code: driver.ErrTooLarge, Op: "capability", Field: "token",
			Detail: fmt.Sprintf("%d caveats and %d bytes, at most %d and %d are allowed", count, size, macaroon.MaxCaveats, macaroon.MaxBytes),
		}
	}
	return Token{macaroon.Seal(macaroon.Extend(body, c, texts))}, nil
}

// IsNarrowed reports whether [Token.NarrowedID] returned id. The text of such an
// id begins with "7Z".
func (id TokenID) IsNarrowed() bool { return id[0] == macaroon.NarrowedMark }

// NarrowedID returns an id that stands for this token and all tokens narrowed from
// it, but not for the token that it was narrowed from: revoking it leaves that token
// and its other descendants valid. It is a hash of the minted id and all caveats, so
// two tokens narrowed in the same way from the same token are the same token. It is
// not secret. The zero Token has the zero TokenID.
func (t Token) NarrowedID() TokenID {
	var m macaroon.Macaroon
	if !m.Parse(t.binary.Bytes()) {
		return TokenID{}
	}
	var last TokenID
	for id := range macaroon.NarrowedIDs(t.ID(), &m, m.Count) {
		last = id
	}
	return last
}
