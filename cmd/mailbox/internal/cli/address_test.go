package cli_test

import (
	"net"
	"os"
	"strings"
	"testing"

	"github.com/mailboxmq/mailbox/server"
)

// port returns the port of an address.
func port(t *testing.T, address string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestAddrWinsOverFramesInEnvironment(t *testing.T) {
	asked, other := start(t, inMemory()), start(t, inMemory())
	token := "MAILBOX_TOKEN_FILE=" + asked.tokenFile()
	for name, environ := range map[string][]string{
		"flag over own variable":     {token, "MAILBOX_OAP_ADDR=" + other.Address(server.OAP)},
		"flag over the daemon's":     {token, "MAILBOXD_LISTEN=" + other.Address(server.HTTP), "MAILBOXD_LISTEN_OAP=" + other.Address(server.OAP)},
		"variable over the daemon's": {token, "MAILBOX_ADDR=" + asked.Address(server.HTTP), "MAILBOXD_LISTEN_OAP=" + other.Address(server.OAP)},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"send", "q", "x"}
			if strings.HasPrefix(name, "flag") {
				args = append(args, "--addr", asked.Address(server.HTTP))
			}
			mailbox(t, environ, args...).wantCode(t, 0)
		})
	}
	if got := other.must(t, "queues", "ls"); got != "" {
		t.Errorf("the other daemon has %q", got)
	}
	// The named daemon is down: the other is not tried.
	asked.stop()
	r := mailbox(t, []string{"MAILBOX_TOKEN_FILE=" + other.tokenFile(), "MAILBOX_OAP_ADDR=" + other.Address(server.OAP)}, "send", "q", "x", "--addr", asked.Address(server.HTTP))
	r.wantCode(t, 3, "no daemon answers at "+asked.Address(server.HTTP))
}

func TestUnspecifiedAddressIsLoopback(t *testing.T) {
	d := start(t, inMemory())
	http, oap := port(t, d.Address(server.HTTP)), port(t, d.Address(server.OAP))
	for _, host := range []string{"0.0.0.0", ""} {
		environ := []string{"MAILBOXD_DATA_DIR=" + d.dir, "MAILBOXD_LISTEN=" + host + ":" + http, "MAILBOXD_LISTEN_OAP=" + host + ":" + oap}
		mailbox(t, environ, "send", "q", "x").wantCode(t, 0)
		mailbox(t, environ[:1], "stats", "--addr", host+":"+http).wantCode(t, 0)
	}
	mailbox(t, []string{"MAILBOX_TOKEN=x"}, "health", "--addr", "[::]:1").wantCode(t, 3, "no daemon answers at [::1]:1")
}

func TestAddressWithoutPortNamesDefaultPort(t *testing.T) {
	environ := []string{"MAILBOX_TOKEN=x"}
	for address, words := range map[string]string{
		"127.0.0.2":        "no daemon answers at 127.0.0.2:9410",
		"http://127.0.0.2": "no daemon answers at 127.0.0.2:80",
		"::1":              "[::1]:9410",
	} {
		r := mailbox(t, environ, "health", "--addr", address)
		if r.code == 0 && address == "::1" {
			continue // this machine runs a daemon there
		}
		r.wantCode(t, 3, words)
	}
}

func TestCLIFindsDaemonByItsOwnVariables(t *testing.T) {
	cert, key := certificate(t)
	config := inMemory()
	config.TLSCert, config.TLSKey = cert, key
	config.Socket = t.TempDir() + "/socket"
	d := start(t, config)
	secure := []string{
		"MAILBOXD_DATA_DIR=" + d.dir, "MAILBOXD_TLS_CERT=" + cert,
		"MAILBOXD_LISTEN=0.0.0.0:" + port(t, d.Address(server.HTTP)), "MAILBOXD_LISTEN_OAP=0.0.0.0:" + port(t, d.Address(server.OAP)),
	}
	mailbox(t, secure, "send", "q", "x").wantCode(t, 0)
	mailbox(t, secure, "health").wantCode(t, 0)
	mailbox(t, append(secure, "MAILBOXD_SOCKET="+config.Socket), "send", "q", "x").wantCode(t, 0)
	// A daemon with another certificate is another daemon.
	stranger, _ := certificate(t)
	secure[1] = "MAILBOXD_TLS_CERT=" + stranger
	mailbox(t, secure, "health").wantCode(t, 3, "another certificate than MAILBOXD_TLS_CERT")
	if err := os.Remove(stranger); err != nil {
		t.Fatal(err)
	}
	mailbox(t, secure, "health").wantCode(t, 2, "MAILBOXD_TLS_CERT")
}
