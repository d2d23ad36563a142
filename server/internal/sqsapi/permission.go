package sqsapi

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// maxPermissionActions bounds the actions of one permission.
const maxPermissionActions = 7

var accountPattern = regexp.MustCompile(`^[0-9]{12}$`)

// permittedActions are the actions that AddPermission accepts.
var permittedActions = []string{
	"*", "SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes", "GetQueueUrl",
	"ListDeadLetterSourceQueues", "PurgeQueue",
}

// ownerActions are the actions that only the owner can use.
var ownerActions = []string{
	"AddPermission", "CancelMessageMoveTask", "CreateQueue", "DeleteQueue", "ListMessageMoveTasks", "ListQueues", "ListQueueTags",
	"RemovePermission", "SetQueueAttributes", "StartMessageMoveTask", "TagQueue", "UntagQueue",
}

// A policy has the parts of a policy that this package reads. Other statements are kept
// unchanged.
type policy struct {
	Version   string            `json:"Version"`
	ID        string            `json:"Id,omitempty"`
	Statement []json.RawMessage `json:"Statement"`
}

// A statement is one that AddPermission adds.
type statement struct {
	SID       string    `json:"Sid"`
	Effect    string    `json:"Effect"`
	Principal principal `json:"Principal"`
	Action    any       `json:"Action"`
	Resource  string    `json:"Resource"`
}

type principal struct {
	AWS any `json:"AWS"`
}

// oneOrMore returns a list as AWS writes it: a single element without the list.
func oneOrMore(texts []string) any {
	if len(texts) == 1 {
		return texts[0]
	}
	return texts
}

// read parses a policy; an empty text has no statements.
func (p *policy) read(text string) error {
	if text == "" {
		return nil
	}
	if json.Unmarshal([]byte(text), p) != nil {
		return sqswire.UnsupportedOperation.Withf("The policy of the queue has a form that permissions cannot be added to.")
	}
	return nil
}

func sidOf(raw json.RawMessage) string {
	var s struct {
		SID string `json:"Sid"`
	}
	_ = json.Unmarshal(raw, &s) // a statement without a Sid matches no label
	return s.SID
}

// addPermission adds a permission to the policy of a queue. It is stored and returned,
// but has no effect: only tokens decide what a client may do.
func (r *request) addPermission(ctx context.Context, in *sqswire.AddPermissionInput) (sqswire.Output, error) {
	q, err := r.administered(ctx, in.QueueURL)
	if err != nil {
		return nil, err
	}
	made, err := r.statement(q, in)
	if err != nil {
		return nil, err
	}
	err = r.edit(ctx, q.TenantQueue, func(s *settings) error {
		p := policy{Version: "2008-10-17", ID: made.Resource + "/SQSDefaultPolicy"}
		if err := p.read(s.Policy); err != nil {
			return err
		}
		if slices.ContainsFunc(p.Statement, func(raw json.RawMessage) bool { return sidOf(raw) == in.Label }) {
			return invalidValue("Label", in.Label, "Already exists.")
		}
		raw, err := json.Marshal(made)
		if err != nil {
			return err
		}
		p.Statement = append(p.Statement, raw)
		text, err := json.Marshal(p)
		s.Policy = string(text)
		return err
	})
	if err != nil {
		return nil, err
	}
	return new(sqswire.AddPermissionOutput), nil
}

// statement checks the input and returns its statement.
func (r *request) statement(q *queue, in *sqswire.AddPermissionInput) (*statement, error) {
	switch {
	case in.Label == "":
		return nil, missing("Label")
	case len(in.Actions) == 0:
		return nil, missing("Actions")
	case in.AWSAccountIDs == nil:
		return nil, missing("AWSAccountIds")
	case len(in.AWSAccountIDs) == 0:
		return nil, invalidValue("PrincipalId", "[]", "Unable to verify.")
	case len(in.Actions) > maxPermissionActions:
		return nil, sqswire.OverLimit.Withf("%d Actions were found, maximum allowed is %d.", len(in.Actions), maxPermissionActions)
	}
	if err := sqswire.CheckLabel(in.Label); err != nil {
		return nil, err
	}
	var principals, actions []string
	for _, account := range in.AWSAccountIDs {
		if !accountPattern.MatchString(account) {
			return nil, invalidValue("PrincipalId", "["+account+"]", "Unable to verify.")
		}
		principals = append(principals, "arn:aws:iam::"+account+":root")
	}
	for _, action := range in.Actions {
		if slices.Contains(ownerActions, action) {
			return nil, invalidValue("ActionName", "SQS:"+action, "Only the queue owner is allowed to invoke this action.")
		}
		if !slices.Contains(permittedActions, action) {
			return nil, invalidValue("ActionName", "SQS:"+action, "Please refer to the appropriate WSDL for a list of valid actions.")
		}
		actions = append(actions, "SQS:"+action)
	}
	return &statement{
		SID: in.Label, Effect: "Allow", Principal: principal{oneOrMore(principals)}, Action: oneOrMore(actions), Resource: r.arn(q.Queue),
	}, nil
}

// removePermission removes a permission from the policy of a queue.
func (r *request) removePermission(ctx context.Context, in *sqswire.RemovePermissionInput) (sqswire.Output, error) {
	q, err := r.administered(ctx, in.QueueURL)
	if err != nil {
		return nil, err
	}
	if in.Label == "" {
		return nil, missing("Label")
	}
	err = r.edit(ctx, q.TenantQueue, func(s *settings) error {
		var p policy
		if err := p.read(s.Policy); err != nil {
			return err
		}
		before := len(p.Statement)
		p.Statement = slices.DeleteFunc(p.Statement, func(raw json.RawMessage) bool { return sidOf(raw) == in.Label })
		if len(p.Statement) == before {
			return invalidValue("Label", in.Label, "can't find label.")
		}
		if len(p.Statement) == 0 {
			s.Policy = ""
			return nil
		}
		text, err := json.Marshal(p)
		s.Policy = string(text)
		return err
	})
	if err != nil {
		return nil, err
	}
	return new(sqswire.RemovePermissionOutput), nil
}
