package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

func (s *shell) messageCommand() *cobra.Command {
	c := parent("message", "Remove a waiting message, or change when it is delivered", s.messageRemove(), s.messageReady(), s.messageDue(), s.messagePriority())
	c.Aliases = []string{"messages"}
	return c
}

// editBody is the request of /v1/edit.
type editBody struct {
	Queue     string     `json:"topic"`
	MessageID string     `json:"msg_id"`
	Remove    bool       `json:"remove,omitempty"`
	Ready     bool       `json:"ready,omitempty"`
	DeliverAt *time.Time `json:"deliver_at,omitempty"`
	Priority  *int       `json:"priority,omitempty"`
}

// editView is a changed message in JSON.
type editView struct {
	ID    string `json:"id"`
	Queue string `json:"queue"`
	Was   string `json:"was"`
}

// edit changes a message and says what became of it, and in which state it was.
func (s *shell) edit(ctx context.Context, a *api, body editBody, outcome string) error {
	var answer struct {
		State string `json:"state"`
	}
	if err := a.call(ctx, apiRequest{path: "/v1/edit", body: body}, &answer); err != nil {
		return err
	}
	return s.say(editView{body.MessageID, body.Queue, answer.State}, "%s\t%s; it was %s", body.MessageID, outcome, answer.State)
}

func (s *shell) messageRemove() *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "remove QUEUE ID", Aliases: []string{"rm"}, Short: "Remove a ready or delayed message permanently",
		Example: "mailbox message remove orders 01K9ZQ4T1V6N8F7M2C3B5D0XAW",
		Args:    wants(2, 2), ValidArgsFunction: s.completeQueue,
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			if err := s.confirm(yes, "removing a message from "+args[0]); err != nil {
				return err
			}
			return s.edit(ctx, a, editBody{Queue: args[0], MessageID: args[1], Remove: true}, "removed")
		}),
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return c
}

func (s *shell) messageReady() *cobra.Command {
	return &cobra.Command{
		Use: "ready QUEUE ID", Aliases: []string{"now"}, Short: "Make a delayed message ready now",
		Example: "mailbox message ready orders 01K9ZQ4T1V6N8F7M2C3B5D0XAW",
		Args:    wants(2, 2), ValidArgsFunction: s.completeQueue,
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			return s.edit(ctx, a, editBody{Queue: args[0], MessageID: args[1], Ready: true}, "ready")
		}),
	}
}

func (s *shell) messagePriority() *cobra.Command {
	return &cobra.Command{
		Use: "priority QUEUE ID PRIORITY", Short: "Change the priority of a ready or delayed message, 0 to 9",
		Long:    "Change the priority of a ready or delayed message. It keeps its place in the queue, and its age.",
		Example: "mailbox message priority orders 01K9ZQ4T1V6N8F7M2C3B5D0XAW 9",
		Args:    wants(3, 3), ValidArgsFunction: s.completeQueue,
		RunE: s.withAPI(func(ctx context.Context, a *api, args []string) error {
			priority, err := strconv.Atoi(args[2])
			if err != nil {
				return usageError("invalid priority %q; want a number from 0 to 9", args[2])
			}
			return s.edit(ctx, a, editBody{Queue: args[0], MessageID: args[1], Priority: &priority}, "priority "+args[2])
		}),
	}
}

func (s *shell) messageDue() *cobra.Command {
	var at string
	var delay time.Duration
	c := &cobra.Command{
		Use: "due QUEUE ID", Short: "Change the due time of a ready or delayed message",
		Long: "Change the due time of a ready or delayed message. It keeps its place in the queue, and its age counts from the due time.",
		Example: "mailbox message due orders 01K9ZQ4T1V6N8F7M2C3B5D0XAW --at 2026-12-24T18:00:00Z\n" +
			"mailbox message due orders 01K9ZQ4T1V6N8F7M2C3B5D0XAW --delay 2h",
		Args: wants(2, 2), ValidArgsFunction: s.completeQueue,
	}
	flags := c.Flags()
	c.RunE = s.withAPI(func(ctx context.Context, a *api, args []string) error {
		if flags.Changed("at") == flags.Changed("delay") {
			return usageError("want one of --at and --delay")
		}
		due, err := parseTime("at", at)
		if err != nil {
			return err
		}
		if flags.Changed("delay") {
			due = time.Now().Add(delay)
		}
		return s.edit(ctx, a, editBody{Queue: args[0], MessageID: args[1], DeliverAt: &due}, "due "+stamp(&due))
	})
	flags.StringVar(&at, "at", "", "deliver it at this time, like 2026-01-02T15:04:05Z, or without a zone in that of this machine; at most 366 days ahead")
	flags.DurationVarP(&delay, "delay", "d", 0, "deliver it this much later than now, by the clock of this machine; at most 8784h (366 days)")
	return c
}
