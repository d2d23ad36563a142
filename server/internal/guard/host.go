package guard

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/mailboxmq/mailbox/driver"
)

// Hosts are the names by which clients without a token may reach the daemon in
// plaintext. A web page can make its own name resolve to the address of the daemon (DNS
// rebinding), and then read answers as if they came from its own site. It cannot choose
// the name in the Host header. The zero value allows:
//
//   - addresses, because a page that was loaded from an address is the daemon's own
//   - localhost and names below it
//   - names without a dot and names below "internal", which an attacker cannot register;
//     containers reach each other, and their host, by such names
type Hosts struct {
	any   bool
	names map[string]bool // a name that begins with a dot means all names below it
}

// NewHosts returns the default with further names. A name may begin with "*.", and "*"
// allows every name. The error names the first invalid name.
func NewHosts(names []string) (Hosts, error) {
	h := Hosts{names: make(map[string]bool, len(names))}
	for _, name := range names {
		if name == "*" {
			h.any = true
			continue
		}
		rest := strings.TrimPrefix(name, "*")
		if rest == "" || strings.ContainsAny(rest, "*/: \t") || rest != name && !strings.HasPrefix(rest, ".") {
			return Hosts{}, fmt.Errorf("invalid name %q; want a host name without port, *.SUFFIX or *", name)
		}
		h.names[canonical(rest)] = true
	}
	return h, nil
}

// canonical returns a name in lower case, without a final dot.
func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// Check returns ErrInvalid if the request came in plaintext, over the network, by a
// name that is not allowed. A client that sends no Host header is not a browser.
func (h *Hosts) Check(r *http.Request) error {
	if r.TLS != nil || r.Host == "" || h.any {
		return nil
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && local.Network() == "unix" {
		return nil
	}
	if h.allows(r.Host) {
		return nil
	}
	return &driver.Error{
		Code: driver.ErrInvalid, Op: "check host", Field: "Host",
		Detail: fmt.Sprintf("%.100q is not a name of this daemon; add it to listen.hosts", r.Host),
	}
}

// CheckLocal is Check for requests to an address that only this machine can reach; it
// allows all others. It is for listeners where everything of value needs a token: from
// other machines they are reached by the names of proxies and load balancers.
func (h *Hosts) CheckLocal(r *http.Request) error {
	if local := localAddr(r); local == nil || local.Network() == "unix" || !Local(r) {
		return nil
	}
	return h.Check(r)
}

// Local reports whether a request came to an address that only this machine can reach:
// a loopback address or a unix socket.
func Local(r *http.Request) bool {
	local := localAddr(r)
	if local == nil {
		return false
	}
	if local.Network() == "unix" {
		return true
	}
	address, err := netip.ParseAddrPort(local.String())
	return err == nil && address.Addr().Unmap().IsLoopback()
}

// localAddr returns the address that a request came to; nil if that is not known.
func localAddr(r *http.Request) net.Addr {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return local
}

// allows reports whether the value of a Host header is allowed.
func (h *Hosts) allows(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = canonical(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	top := host[strings.LastIndexByte(host, '.')+1:]
	if top == host || top == "localhost" || top == "internal" || h.names[host] {
		return true
	}
	for rest := host; ; {
		dot := strings.IndexByte(rest, '.')
		if dot < 0 {
			return false
		}
		if h.names[rest[dot:]] {
			return true
		}
		rest = rest[dot+1:]
	}
}
