package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

func (s *shell) capCommand() *cobra.Command {
	c := parent("cap", "Make, narrow, read and revoke tokens", s.capMint(), s.capNarrow(), s.capInspect(), s.capToken(), s.capAWS(), s.capRevoke())
	c.SuggestFor = []string{"token", "tokens"}
	return c
}

// capToken prints the token that commands use, for images without a shell.
func (s *shell) capToken() *cobra.Command {
	return &cobra.Command{
		Use: "token", Short: "Print the token that commands use",
		Long:    "Print the token that commands use. On the machine or in the container of a daemon that is the operator's.",
		Example: "docker exec mailboxd mailbox cap token",
		Args:    wants(0, 0),
		RunE: s.run(func(context.Context, []string) error {
			found, err := s.credential()
			if err != nil {
				return err
			}
			v := viewOfToken(found.token)
			v.Token = found.token.Reveal()
			return s.say(v, "%s", v.Token)
		}),
	}
}

// tokenView is a token in JSON. The token itself is included only if the command prints
// tokens.
type tokenView struct {
	Token     string     `json:"token,omitempty"`
	File      string     `json:"file,omitempty"`
	TokenID   string     `json:"token_id"`
	Narrowed  string     `json:"narrowed_id"`
	KeyID     string     `json:"key_id"`
	Tenant    string     `json:"tenant,omitempty"`
	MintedAt  time.Time  `json:"minted_at"`
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	// Operations, Queues and Limits are what all caveats together allow.
	Operations []string `json:"operations"`
	Queues     []string `json:"queues"`
	Limits     []string `json:"limits,omitempty"`
	Caveats    []string `json:"caveats"`
}

func viewOfToken(token capability.Token) tokenView {
	d := token.Inspect()
	v := tokenView{
		TokenID: d.ID.String(), Narrowed: token.NarrowedID().String(), KeyID: d.Key.String(), Tenant: d.Tenant, MintedAt: d.MintedAt.UTC(), ExpiresAt: timeOf(d.ExpiresAt),
		Operations: []string{}, Queues: []string{}, Limits: d.Limits, Caveats: []string{},
	}
	for _, operation := range d.Operations {
		v.Operations = append(v.Operations, operation.String())
	}
	for _, pattern := range d.Queues {
		v.Queues = append(v.Queues, pattern.String())
	}
	for _, caveat := range d.Caveats {
		v.Caveats = append(v.Caveats, caveat.String())
	}
	return v
}

// outputToken prints a token, or writes it to a file that only its owner can read.
func (s *shell) outputToken(token capability.Token, path string) error {
	v := viewOfToken(token)
	if path != "" {
		if err := token.WriteFile(path); err != nil {
			return &failure{exit: exitFailed, code: "output", cause: err, sentence: fmt.Sprintf("%s cannot be written (%s)", path, rootCause(err)), advice: "choose another file with --out"}
		}
		v.File = path
		return s.say(v, "%s is in %s", v.TokenID, path)
	}
	v.Token = token.Reveal()
	return s.say(v, "%s", v.Token)
}

func (s *shell) capMint() *cobra.Command {
	var f caveatFlags
	var tenant, out string
	c := &cobra.Command{
		Use: "mint", Short: "Make a token",
		Long: "Make a token, and print it. It must name its operations (--op), its queues (--queue) and its expiry\n" +
			"(--expires). It does not outlive the token that it is minted with, which must allow admin.",
		Example: "mailbox cap mint --op send --queue orders --expires 720h --out shop.token\n" +
			"mailbox cap mint --op recv,ack,nack,extend --queue 'orders' --expires 24h --rate 100",
		Args: wants(0, 0),
	}
	f.register(c.Flags())
	c.Flags().StringVar(&tenant, "tenant", "", "tenant that it is for")
	c.Flags().StringVarP(&out, "out", "o", "", "write it to this file instead")
	c.RunE = s.withAPI(func(ctx context.Context, a *api, _ []string) error {
		caveats, err := f.caveats(c.Flags(), time.Now())
		if err != nil {
			return err
		}
		if len(f.raw) == 0 && (len(f.operations) == 0 || len(f.queues) == 0 || f.expires == "") {
			return usageError("a token must name its operations, its queues and its expiry; give --op, --queue and --expires")
		}
		texts := make([]string, len(caveats))
		for i, caveat := range caveats {
			texts[i] = caveat.String()
		}
		var answer struct {
			Token string `json:"token"`
		}
		if err := a.call(ctx, apiRequest{path: "/v1/caps/mint", body: map[string]any{"tenant": tenant, "caveats": texts}}, &answer); err != nil {
			return err
		}
		token, err := capability.Parse(answer.Token)
		if err != nil {
			return err
		}
		// A token with raw caveats may lack an expiry; then only that of its minter counts.
		if end, maker := token.Inspect().ExpiresAt, a.token.Inspect().ExpiresAt; f.expires != "" && end.Equal(maker) {
			s.tell("mailbox: note: the token expires at %s, with the token that it is minted with.\n", end.UTC().Format(time.RFC3339))
		}
		return s.outputToken(token, out)
	})
	return c
}

// readToken reads a token from a file, from standard input for "-", or returns the
// one that commands use.
func (s *shell) readToken(path string) (capability.Token, error) {
	switch path {
	case "":
		c, err := s.credential()
		return c.token, err
	case "-":
		text, err := io.ReadAll(io.LimitReader(s.Stdin, 4*macaroon.MaxBytes))
		if err != nil {
			return capability.Token{}, usageError("standard input cannot be read: %v", err)
		}
		token, err := capability.Parse(strings.TrimSpace(string(text)))
		if err != nil {
			return token, usageError("standard input does not contain a token")
		}
		return token, nil
	}
	// Unlike the file of the CLI's own token, this file may be readable by other
	// users.
	text, err := os.ReadFile(path)
	if err != nil {
		return capability.Token{}, usageError("read token: %v", err)
	}
	token, err := capability.Parse(string(bytes.TrimSpace(text)))
	if err != nil {
		return token, usageError("%s does not contain a token", path)
	}
	return token, nil
}

func (s *shell) capNarrow() *cobra.Command {
	var f caveatFlags
	var out string
	c := &cobra.Command{
		Use: "narrow [FILE]", Aliases: []string{"attenuate"}, Short: "Narrow a token, without a daemon",
		Long: "Narrow a token, and print the result: it allows what the first does, if the further caveats are met too.\n" +
			"No daemon is called. The token is read from FILE, from standard input if that is -, or is the one that commands use.",
		Example: "mailbox cap narrow shop.token --queue 'orders' --expires 1h\nmailbox cap narrow --op recv,ack --net 10.0.0.0/8",
		Args:    wants(0, 1),
	}
	f.register(c.Flags())
	c.Flags().StringVarP(&out, "out", "o", "", "write it to this file instead")
	c.RunE = s.run(func(_ context.Context, args []string) error {
		caveats, err := f.caveats(c.Flags(), time.Now())
		if err != nil {
			return err
		}
		if len(caveats) == 0 {
			return usageError("no caveats given; narrow with flags like --op, --queue or --expires")
		}
		token, err := s.readToken(firstArg(args))
		if err != nil {
			return err
		}
		narrowed, err := token.Narrow(caveats...)
		if err != nil {
			return usageError("the token cannot be narrowed further: %s", rootCause(err))
		}
		before, after := token.Inspect(), narrowed.Inspect()
		for _, c := range []struct {
			what      string
			had, left int
		}{{"operation", len(before.Operations), len(after.Operations)}, {"queue", len(before.Queues), len(after.Queues)}} {
			if c.had > 0 && c.left == 0 {
				return usageError("the result would allow nothing: the token and the new caveats have no %s in common; mailbox cap inspect shows what it allows", c.what)
			}
		}
		return s.outputToken(narrowed, out)
	})
	return c
}

func firstArg(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

func (s *shell) capInspect() *cobra.Command {
	return &cobra.Command{
		Use: "inspect [FILE]", Short: "Show what a token allows, without a daemon",
		Long: "Show what a token allows, without printing it: first what all of its caveats together allow, then each caveat.\n" +
			"No daemon is called, so nothing of it is proven. The ids are those that mailbox cap revoke takes.\n" +
			"The token is read from FILE, from standard input if that is -, or is the one that commands use.",
		Example: "mailbox cap inspect\nmailbox cap inspect shop.token --json",
		Args:    wants(0, 1),
		RunE: s.run(func(_ context.Context, args []string) error {
			token, err := s.readToken(firstArg(args))
			if err != nil {
				return err
			}
			v := viewOfToken(token)
			if s.global.json {
				return s.object(v)
			}
			return s.line("%s", strings.Join(v.words(token, time.Now()), "\n"))
		}),
	}
}

// words describes what a token allows, and then each of its caveats.
func (v *tokenView) words(token capability.Token, now time.Time) []string {
	lines := []string{
		"token " + v.TokenID,
		"narrowed id " + v.Narrowed + " (revokes this token without the one that it was narrowed from)",
	}
	switch {
	case len(v.Operations) == 0 || len(v.Queues) == 0:
		lines = append(lines, "allows nothing: the caveats leave no operation on any queue, or one of them is missing or unknown")
	case strings.Join(v.Queues, "") == "*":
		lines = append(lines, "allows "+strings.Join(v.Operations, ", ")+" on all queues")
	default:
		lines = append(lines, "allows "+strings.Join(v.Operations, ", ")+" on "+strings.Join(v.Queues, ", "))
	}
	switch {
	case v.ExpiresAt == nil:
		lines = append(lines, "without an expiry, so it is always refused")
	case !v.ExpiresAt.After(now):
		lines = append(lines, "expired at "+v.ExpiresAt.Format(time.RFC3339))
	default:
		lines = append(lines, "until "+v.ExpiresAt.Format(time.RFC3339))
	}
	lines = append(append(lines, v.Limits...), "caveats:")
	for _, words := range token.Inspect().Words() {
		lines = append(lines, "  "+words)
	}
	return lines
}

// revokedView is a revocation in JSON.
type revokedView struct {
	TokenID string `json:"token_id,omitempty"`
	Tenant  string `json:"tenant,omitempty"`
	// Alone says that the token that this one was narrowed from stays valid.
	Alone bool `json:"alone,omitempty"`
}

// words describes which tokens are revoked, and which are not.
func (v *revokedView) words() string {
	switch {
	case v.Tenant != "":
		return "all tokens of tenant " + v.Tenant + " minted so far"
	case v.Alone:
		return v.TokenID + ", with all tokens narrowed from it or minted with it (the token that it was narrowed from stays valid)"
	}
	return v.TokenID + ", with all tokens narrowed from it or minted with it"
}

// checkTokenID refuses a text that cannot be the id of a token. The daemon has no list of
// tokens, but it knows messages, whose ids look the same.
func (a *api) checkTokenID(ctx context.Context, id string) error {
	const advice = "mailbox cap inspect prints the id of a token"
	parsed, err := capability.ParseTokenID(id)
	if err != nil {
		return usageError("%.60q is not the id of a token; "+advice, id)
	}
	if parsed.IsNarrowed() {
		return nil // no message has such an id
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second) // revoking is urgent
	defer cancel()
	if _, queue, err := a.trace(ctx, "", id); err == nil {
		return usageError("%s is the id of a message in %s, not of a token; "+advice, id, queue)
	}
	return nil // revoking an id that no token has is harmless
}

func (s *shell) capRevoke() *cobra.Command {
	var file, tenant string
	var alone, yes bool
	c := &cobra.Command{
		Use: "revoke [TOKEN_ID]", Short: "Revoke a token, and all tokens narrowed from it",
		Long: "Revoke a token and all tokens narrowed from it: they allow only acks of what they have received;\n" +
			"or with --tenant all tokens of a tenant that were minted so far. Tokens minted with a revoked token are revoked too.\n" +
			"A narrowed token is revoked without the one that it was narrowed from by its narrowed id (7Z…), which cap inspect\n" +
			"prints, or with --file and --alone; otherwise all tokens narrowed from the same minted token are revoked.\n" +
			"With a tenant's token, tokens can be revoked with --file only: an id does not prove the tenant.\n" +
			"It asks first, unless --yes is given.",
		Example: "mailbox cap revoke 01K9ZQ4T1V6N8F7M2C3B5D0XAW\nmailbox cap revoke --file shop.token\n" +
			"mailbox cap revoke --file narrowed.token --alone --yes",
		Args: wants(0, 1),
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			v := revokedView{TokenID: firstArg(args), Tenant: tenant}
			body := map[string]any{}
			if file != "" && v.TokenID == "" {
				token, err := s.readToken(file)
				if err != nil {
					return err
				}
				v.TokenID = token.ID().String()
				body["token"] = token.Reveal() // proves its tenant, and contains its expiry
				if alone {
					v.TokenID, body["alone"] = token.NarrowedID().String(), true
				}
			} else if file != "" {
				return usageError("the token is named twice, by its id and with --file; leave one out")
			}
			if (v.TokenID == "") == (v.Tenant == "") {
				return usageError("name either a token, by its id or with --file, or a --tenant")
			}
			if alone && file == "" {
				return usageError("--alone: want --file too; a narrowed id, which begins with 7Z, is revoked alone without it")
			}
			switch {
			case file != "":
			case v.TokenID != "":
				if err := a.checkTokenID(ctx, v.TokenID); err != nil {
					return err
				}
				body["token_id"] = v.TokenID
			default:
				body["tenant"] = v.Tenant
			}
			id, err := capability.ParseTokenID(v.TokenID)
			v.Alone = err == nil && id.IsNarrowed()
			if err := s.confirm(yes, "revoking "+v.words()); err != nil {
				return err
			}
			if err := a.call(ctx, apiRequest{path: "/v1/caps/revoke", body: body}, nil); err != nil {
				return err
			}
			return s.say(v, "revoked %s", v.words())
		}),
	}
	c.Flags().StringVarP(&file, "file", "f", "", "file of the token")
	c.Flags().BoolVar(&alone, "alone", false, "with --file: do not revoke the token that it was narrowed from")
	c.Flags().StringVar(&tenant, "tenant", "", "revoke all tokens of this tenant")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}
