package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// leaves yields the commands without subcommands.
func leaves(c *cobra.Command) []*cobra.Command {
	if !c.HasSubCommands() {
		return []*cobra.Command{c}
	}
	var found []*cobra.Command
	for _, child := range c.Commands() {
		found = append(found, leaves(child)...)
	}
	return found
}

func TestDocumentNamesEveryCommandAndFlagOnce(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	document := string(text)
	sections := make(map[string]string)
	for _, section := range strings.Split(document, "\n### ")[1:] {
		title, body, _ := strings.Cut(section, "\n")
		if sections[title] != "" {
			t.Errorf("%s is there twice", title)
		}
		sections[title] = body
	}
	root := (&shell{}).root()
	for _, c := range leaves(root) {
		section, ok := sections[c.CommandPath()]
		if !ok {
			t.Errorf("there is no section about %s", c.CommandPath())
		}
		delete(sections, c.CommandPath())
		c.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
			if !strings.Contains(section, "--"+flag.Name) {
				t.Errorf("the section about %s does not name --%s", c.CommandPath(), flag.Name)
			}
		})
	}
	for title := range sections {
		t.Errorf("there is a section about %s, and no such command", title)
	}
	root.PersistentFlags().VisitAll(func(flag *pflag.Flag) {
		if !strings.Contains(document, "--"+flag.Name) {
			t.Errorf("the document does not name --%s", flag.Name)
		}
	})
}
