package sqsapi

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/server/internal/broker"
	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

const (
	maxReceiveCount   = 1000
	maxAllowedSources = 10
)

// A redrivePolicy names the dead-letter queue, and the receives after which a message
// goes there.
type redrivePolicy struct {
	account, queue string
	count          int
	target         string // the ARN as given by the client
}

// redrivePolicy returns the stored policy; false if there is none.
func (s *settings) redrivePolicy() (redrivePolicy, bool) {
	if s.Redrive == "" {
		return redrivePolicy{}, false
	}
	policy, err := parseRedrivePolicy(s.Redrive)
	return policy, err == nil
}

// parseRedrivePolicy reads the text of a policy. The count may be a number or a string;
// both are common.
func parseRedrivePolicy(text string) (redrivePolicy, error) {
	var raw struct {
		Target string          `json:"deadLetterTargetArn"`
		Count  json.RawMessage `json:"maxReceiveCount"`
	}
	invalid := func(reason string) error {
		return sqswire.InvalidParameterValue.Withf("Value %s for parameter RedrivePolicy is invalid. Reason: %s", text, reason)
	}
	if json.Unmarshal([]byte(text), &raw) != nil {
		return redrivePolicy{}, invalidAttribute(attributeRedrive)
	}
	switch {
	case raw.Count == nil:
		return redrivePolicy{}, invalid("Redrive policy does not contain mandatory attribute: maxReceiveCount.")
	case raw.Target == "":
		return redrivePolicy{}, invalid("Redrive policy does not contain mandatory attribute: deadLetterTargetArn.")
	}
	count, ok := wholeNumber(raw.Count)
	if !ok || count < 1 || count > maxReceiveCount {
		return redrivePolicy{}, invalid("Invalid value for maxReceiveCount: " + string(raw.Count) + ", valid values are from 1 to 1000 both inclusive.")
	}
	account, queue, ok := parseARN(raw.Target)
	if !ok {
		return redrivePolicy{}, invalid("Only SQS queues are valid resources for deadLetterTargetArn.")
	}
	return redrivePolicy{account, queue, count, raw.Target}, nil
}

// redriveText returns the redrive policy for clients. The count is a number, even if it
// was given as a string.
func (s *settings) redriveText() string {
	policy, ok := s.redrivePolicy()
	if !ok {
		return s.Redrive
	}
	text, err := json.Marshal(struct {
		Target string `json:"deadLetterTargetArn"`
		Count  int    `json:"maxReceiveCount"`
	}{policy.target, policy.count})
	if err != nil {
		return s.Redrive
	}
	return string(text)
}

// checkRedriveFields refuses unknown fields of a redrive policy. Stored policies may have
// them, from before this check existed.
func checkRedriveFields(text string) error {
	var fields map[string]json.RawMessage
	if json.Unmarshal([]byte(text), &fields) != nil {
		return invalidAttribute(attributeRedrive)
	}
	for name := range fields {
		if name != "deadLetterTargetArn" && name != "maxReceiveCount" {
			return invalidValue(attributeRedrive, text, "Only following attributes are supported: [maxReceiveCount, deadLetterTargetArn].")
		}
	}
	return nil
}

// wholeNumber reads 5 or "5".
func wholeNumber(raw json.RawMessage) (int, bool) {
	text := string(raw)
	if unquoted, err := strconv.Unquote(text); err == nil {
		text = unquoted
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}

// A redriveAllowPolicy names the queues that may send their dead letters to a queue.
type redriveAllowPolicy struct {
	Permission string   `json:"redrivePermission"`
	Sources    []string `json:"sourceQueueArns"`
}

// The permissions.
const (
	allowAll = "allowAll"
	denyAll  = "denyAll"
	byQueue  = "byQueue"
)

// parseRedriveAllowPolicy reads the text of a policy.
func parseRedriveAllowPolicy(text string) (redriveAllowPolicy, error) {
	invalid := func(reason string) error {
		return sqswire.InvalidParameterValue.Withf("Value %s for parameter RedriveAllowPolicy is invalid. Reason: %s", text, reason)
	}
	var policy redriveAllowPolicy
	if json.Unmarshal([]byte(text), &policy) != nil {
		return policy, invalidAttribute(attributeRedriveAllow)
	}
	switch policy.Permission {
	case allowAll, denyAll:
		if len(policy.Sources) > 0 {
			return policy, invalid("Amazon SQS can't create the redrive allow policy. To specify one or more source queue ARNs, you must set redrivePermission to byQueue.")
		}
	case byQueue:
		switch {
		case len(policy.Sources) == 0:
			return policy, invalid("Amazon SQS can't create the redrive allow policy. When you specify the byQueue permission type, you must also specify one or more sourceQueueArns values.")
		case len(policy.Sources) > maxAllowedSources:
			return policy, invalid("Amazon SQS can't create the redrive allow policy. The maximum number of source queue ARNs you can specify is 10.")
		}
		for _, source := range policy.Sources {
			if _, _, ok := parseARN(source); !ok {
				return policy, invalidAttribute(attributeRedriveAllow)
			}
		}
	default:
		return policy, invalidAttribute(attributeRedriveAllow)
	}
	return policy, nil
}

// allows reports whether a queue may send its dead letters here. Regions are not
// compared: the daemon accepts any name for its only one.
func (p *redriveAllowPolicy) allows(account, source string) bool {
	switch p.Permission {
	case denyAll:
		return false
	case byQueue:
		return slices.ContainsFunc(p.Sources, func(arn string) bool {
			owner, queue, _ := parseARN(arn)
			return owner == account && queue == source
		})
	}
	return true
}

// checkPolicies checks the policies among the attributes for the queue source: their
// form, and the queue that they name.
func (r *request) checkPolicies(ctx context.Context, source string, s *settings, attributes map[string]string) error {
	if text := attributes[attributeRedriveAllow]; text != "" {
		if _, err := parseRedriveAllowPolicy(text); err != nil {
			return err
		}
	}
	text := attributes[attributeRedrive]
	if text == "" {
		return nil
	}
	if err := checkRedriveFields(text); err != nil {
		return err
	}
	policy, err := parseRedrivePolicy(text)
	if err != nil {
		return err
	}
	invalid := func(reason string) error {
		return sqswire.InvalidParameterValue.Withf("Value %s for parameter RedrivePolicy is invalid. Reason: %s", text, reason)
	}
	if policy.account != r.account {
		return invalid("Dead-letter target owner should be same as the source.")
	}
	// Only callers that may administer the target learn whether it exists, and its type.
	if err := r.caller.May(ctx, capability.OpAdmin, policy.queue); err != nil {
		return err
	}
	target, err := r.service.load(ctx, broker.TenantQueue{Tenant: r.caller.Tenant(), Queue: policy.queue})
	switch {
	case errors.Is(err, sqswire.QueueDoesNotExist) && policy.queue == source:
		return nil // it is about to be created
	case errors.Is(err, sqswire.QueueDoesNotExist):
		return invalid("Dead letter target does not exist.")
	case err != nil:
		return err
	case target.FIFO != s.FIFO:
		return invalid("Dead-letter queue must be same type of queue as the source..")
	}
	if target.RedriveAllow == "" {
		return nil
	}
	allow, err := parseRedriveAllowPolicy(target.RedriveAllow)
	if err == nil && !allow.allows(r.account, source) {
		return invalid("Queue " + r.arn(source) + " is not allowed by the redrive allow policy of the dead-letter queue.")
	}
	return err
}
