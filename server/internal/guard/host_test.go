package guard_test

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"testing"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/server/internal/guard"
)

func TestHostIsCheckedAgainstNames(t *testing.T) {
	hosts, err := guard.NewHosts([]string{"mailbox.example.com", "*.cluster.local"})
	if err != nil {
		t.Fatal(err)
	}
	for host, allowed := range map[string]bool{
		"": true, "127.0.0.1:9410": true, "10.1.2.3": true, "[::1]:9410": true, "[::1]": true, "::1": true,
		"localhost": true, "LocalHost.:9410": true, "a.localhost:9410": true,
		"mailboxd:9410": true, "host.docker.internal:4566": true,
		"mailbox.example.com": true, "Mailbox.Example.com.:9410": true, "a.b.cluster.local": true,
		"evil.example": false, "evil.example:9410": false, "127.0.0.1.evil.example": false, "cluster.local": false,
		"a.mailbox.example.com": false, "notcluster.local": false, "localhost.evil.example:9410": false,
	} {
		if err := hosts.Check(&http.Request{Host: host}); (err == nil) != allowed || err != nil && !errors.Is(err, driver.ErrInvalid) {
			t.Errorf("%q: %v, allowed is %t", host, err, allowed)
		}
	}
	if hosts.Check(&http.Request{Host: "evil.example", TLS: new(tls.ConnectionState)}) != nil {
		t.Error("a request over TLS is checked")
	}
	for _, bad := range []string{"", "a b", "http://a.example", "a.example:80", "*x.example", "a.*.example"} {
		if _, err := guard.NewHosts([]string{bad}); err == nil {
			t.Errorf("%q was accepted as a name", bad)
		}
	}
	any, err := guard.NewHosts([]string{"*"})
	if err != nil || any.Check(&http.Request{Host: "evil.example"}) != nil {
		t.Errorf("* does not allow every name: %v", err)
	}
}

func TestLocalCheckIsForLoopback(t *testing.T) {
	for address, refused := range map[net.Addr]bool{
		&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}: true,
		&net.TCPAddr{IP: net.IPv6loopback, Port: 1}:       true,
		&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}:  false,
		&net.UnixAddr{Name: "socket", Net: "unix"}:        false,
	} {
		r := (&http.Request{Host: "evil.example"}).WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, address))
		if err := new(guard.Hosts).CheckLocal(r); (err != nil) != refused {
			t.Errorf("at %v: %v", address, err)
		}
	}
}
