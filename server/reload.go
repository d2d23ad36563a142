package server

import (
	"context"
	"crypto/tls"
	"log/slog"
	"reflect"

	"github.com/mailboxmq/mailbox/driver"
)

// Reload applies what can change while the daemon runs: the settings with
// setting.Live, the certificate, the keys and the credentials of SQS. As at the start,
// it renews the operator's token, and creates or changes the queues declared for SQS.
// It logs each setting that changed, and each that changed and needs a restart. It
// returns an error, and changes nothing, if the configuration is not valid or a file
// cannot be read. It blocks on I/O.
func (s *Server) Reload(config Config) error {
	config = config.complete()
	if err := config.Validate(); err != nil {
		return err
	}
	select {
	case <-s.started:
	default:
		return &driver.Error{Code: driver.ErrUnavailable, Op: "reload", Detail: "the daemon has not started"}
	}
	// All files are read before the first change, which is the declaration of queues. It
	// can fail halfway, as at the start.
	var certificate *tls.Config
	if s.certs != nil {
		var err error
		if certificate, err = s.certs.read(); err != nil {
			return err
		}
	}
	credentials, err := s.readCredentials()
	if err != nil {
		return err
	}
	if err := s.keys.reload(func() error { return s.declare(config.SQS.Queues) }); err != nil {
		return err
	}
	if err := s.broker.SetLimits(config.limits()); err != nil {
		return err // does not happen: the configuration was validated
	}
	if s.certs != nil {
		s.certs.current.Store(certificate)
	}
	s.sqs.SetCredentials(credentials)
	s.keys.keepOperator(context.Background(), s.log) // one small file is read and written
	level, _ := config.logLevel()                    // cannot fail: the configuration was validated
	s.level.Set(level)
	before := s.Config()
	next := before
	for i := range settings {
		if settings[i].Live {
			settings[i].copy(&next, &config)
		}
	}
	next.SQS.Queues = config.SQS.Queues
	s.config.Store(&next)
	s.reportReload(&before, &config)
	s.broker.RecordReload()
	return nil
}

// reportReload logs which settings a reload changed, and which need a restart. It does
// not log values that may contain a password.
func (s *Server) reportReload(before, after *Config) {
	changed, pending := 0, 0
	for i := range settings {
		setting := &settings[i]
		from, to := setting.text(before), setting.text(after)
		if from == to || setting.Deprecated {
			continue
		}
		attrs := []any{slog.String("key", setting.Key)}
		if !setting.Secret {
			attrs = append(attrs, slog.String("from", from), slog.String("to", to))
		}
		if setting.Live {
			changed++
			s.log.Info("setting.changed", attrs...)
			continue
		}
		pending++
		if setting.NewQueues {
			attrs = append(attrs, slog.String("applies_to", "queues created after the restart; existing queues keep theirs"))
		}
		s.log.Warn("setting.needs_restart", attrs...)
	}
	if !reflect.DeepEqual(before.SQS.Queues, after.SQS.Queues) {
		changed++
		s.log.Info("setting.changed", slog.String("key", "sqs.queues"))
	}
	s.log.Info("reloaded", slog.Int("changed", changed), slog.Int("need_restart", pending))
}
