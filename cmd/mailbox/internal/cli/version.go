package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mailboxmq/mailbox/internal/version"
)

// version returns the version of the build.
func (s *shell) version() version.Info {
	v := version.Read()
	if s.Version != "" {
		v.Version = s.Version
	}
	return v
}

func (s *shell) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: wants(0, 0),
		RunE: s.run(func(context.Context, []string) error {
			v := s.version()
			return s.say(v, "mailbox %s", v)
		}),
	}
}
