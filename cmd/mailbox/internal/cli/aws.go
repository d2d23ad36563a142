package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// awsView is a token in the form that clients of AWS expect from a program for
// credentials (credential_process).
type awsView struct {
	Version         int        `json:"Version"`
	AccessKeyID     string     `json:"AccessKeyId"`
	SecretAccessKey string     `json:"SecretAccessKey"`
	SessionToken    string     `json:"SessionToken"`
	Expiration      *time.Time `json:"Expiration,omitempty"`
}

// localRegion is the region that credentials are printed with: one that Amazon does not
// have. The AWS CLI, version 1, ignores AWS_ENDPOINT_URL_SQS for each region that it
// knows, and would send the token to Amazon.
const localRegion = "local-1"

func (s *shell) capAWS() *cobra.Command {
	var region string
	c := &cobra.Command{
		Use: "aws [FILE]", Short: "Print a token as credentials for clients of Amazon SQS",
		Long: "Print a token as the variables from which every AWS SDK reads its credentials, region and endpoint. No daemon is\n" +
			"called. The token is read from FILE, from standard input if that is -, or is the one that commands use. The endpoint is\n" +
			"the daemon's HTTP (--addr), and is left out for a socket. The region is " + localRegion + ", which Amazon does not have: for a\n" +
			"region that it knows, version 1 of the AWS CLI ignores the endpoint and sends the token to Amazon. --region names\n" +
			"another; the daemon accepts any. With --json the output has the form that credential_process expects in an AWS configuration.",
		Example: "eval \"$(mailbox cap aws)\"\nmailbox cap mint --op send --queue orders --expires 24h | mailbox cap aws -",
		Args:    wants(0, 1),
		RunE: s.run(func(_ context.Context, args []string) error {
			token, err := s.readToken(firstArg(args))
			if err != nil {
				return err
			}
			c := macaroon.CredentialsOf(token.RevealBinary(nil))
			v := awsView{
				Version: 1, AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey.Reveal(), SessionToken: c.SessionToken,
				Expiration: timeOf(token.Inspect().ExpiresAt),
			}
			lines := []string{
				"export AWS_ACCESS_KEY_ID=" + v.AccessKeyID,
				"export AWS_SECRET_ACCESS_KEY=" + v.SecretAccessKey,
				"export AWS_SESSION_TOKEN=" + v.SessionToken,
			}
			place, err := s.awsPlace(region)
			if err != nil {
				return err
			}
			return s.say(v, "%s", strings.Join(append(lines, place...), "\n"))
		}),
	}
	c.Flags().StringVar(&region, "region", localRegion, "region that clients sign for")
	return c
}

// awsPlace returns the lines that set region and endpoint.
func (s *shell) awsPlace(region string) ([]string, error) {
	if region == "" {
		return nil, usageError("--region is empty; leave it out, or name one")
	}
	lines := []string{"export AWS_REGION=" + shellQuoted(region), "export AWS_DEFAULT_REGION=" + shellQuoted(region)}
	a := s.addresses()
	if strings.HasPrefix(a.http, "unix:") {
		return lines, nil
	}
	parsed, err := parseAddress(a.http)
	if err != nil {
		return nil, wrongAddress(a.source, a.http, "host:port or https://host:port")
	}
	return append(lines, "export AWS_ENDPOINT_URL_SQS="+shellQuoted(strings.TrimSuffix(parsed.String(), "/"))), nil
}

// shellQuoted returns text as one word of a shell.
func shellQuoted(text string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:/[]", r)
	}
	if strings.IndexFunc(text, func(r rune) bool { return !plain(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
