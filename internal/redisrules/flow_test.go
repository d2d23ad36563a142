package redisrules_test

import "github.com/mailboxmq/mailbox/internal/testing/workertest"

func flowRules() []rule {
	var cases []ruleCase
	for _, c := range workertest.Cases() {
		cases = append(cases, ruleCase{c.Name, func(s *env) { c.Run(s.Env) }})
	}
	return []rule{{workertest.Rule, cases}}
}
