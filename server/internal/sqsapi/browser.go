package sqsapi

import (
	"net/http"
	"net/url"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sqswire"
)

// checkSite refuses a request that a browser sends for a page of another site, including
// one whose name resolves to the address of the daemon. Without signatures, any page that
// is open on this machine could otherwise delete queues: a link or a form is enough.
// Clients other than browsers do not send these headers.
func (s *Service) checkSite(r *http.Request) error {
	if err := s.options.Hosts.Check(r); err != nil {
		return sqswire.AccessDenied.Withf("The host %.100q is not a name of this daemon; add it to listen.hosts.", r.Host)
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "cross-site", "same-site":
		return sqswire.AccessDenied.Withf("Pages of other sites cannot use this service.")
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil
	}
	if site, err := url.Parse(origin); err != nil || site.Host != r.Host {
		return sqswire.AccessDenied.Withf("Pages of other sites cannot use this service.")
	}
	return nil
}
