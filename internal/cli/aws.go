package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// awsView is a token in the form in which clients of AWS ask a program for
// credentials (credential_process).
type awsView struct {
	Version         int        `json:"Version"`
	AccessKeyID     string     `json:"AccessKeyId"`
	SecretAccessKey string     `json:"SecretAccessKey"`
	SessionToken    string     `json:"SessionToken"`
	Expiration      *time.Time `json:"Expiration,omitempty"`
}

func (s *shell) capAWS() *cobra.Command {
	return &cobra.Command{
		Use: "aws [FILE]", Short: "Print a token as credentials for clients of Amazon SQS",
		Long: "Print a token as the three variables that every SDK of AWS reads its credentials from. No daemon is asked. The token is\n" +
			"read from FILE, from standard input if that is -, or is the one that commands use. With --json the output is what\n" +
			"credential_process in a file of settings of AWS wants.",
		Example: "eval \"$(mailbox cap aws)\"\nmailbox cap mint --op send --queue orders --expires 24h | mailbox cap aws -",
		Args:    wants(0, 1),
		RunE: s.run(func(_ context.Context, args []string) error {
			token, err := s.readToken(firstArg(args))
			if err != nil {
				return err
			}
			c := token.Credentials()
			v := awsView{
				Version: 1, AccessKeyID: c.AccessKeyID, SecretAccessKey: c.SecretAccessKey.Reveal(), SessionToken: c.SessionToken,
				Expiration: timeOf(token.Inspect().ExpiresAt),
			}
			return s.say(v, "%s", strings.Join([]string{
				"export AWS_ACCESS_KEY_ID=" + v.AccessKeyID,
				"export AWS_SECRET_ACCESS_KEY=" + v.SecretAccessKey,
				"export AWS_SESSION_TOKEN=" + v.SessionToken,
			}, "\n"))
		}),
	}
}
