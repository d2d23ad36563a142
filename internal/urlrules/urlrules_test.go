package urlrules_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mailboxmq/mailbox"
	_ "github.com/mailboxmq/mailbox/diskbox"
	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/testing/pgtest"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/sqstest"
	_ "github.com/mailboxmq/mailbox/membox"
	_ "github.com/mailboxmq/mailbox/pgbox"
	_ "github.com/mailboxmq/mailbox/redisbox"
	_ "github.com/mailboxmq/mailbox/remotebox"
	"github.com/mailboxmq/mailbox/server"
	_ "github.com/mailboxmq/mailbox/sqsbox"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// startDaemon runs a daemon in memory, with TLS if it gets a certificate and a key, and
// returns its address, and the file of its token.
func startDaemon(t *testing.T, certificate, key string) (address, tokenFile string) {
	t.Helper()
	daemon, err := server.New(server.Config{
		Profile: server.Micronode, Listen: server.Off, ListenOAP: "127.0.0.1:0", LogLevel: "error",
		TLSCert: certificate, TLSKey: key,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- daemon.Run(ctx) }()
	select {
	case <-daemon.Started():
	case err := <-done:
		stop()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	tokenFile = filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(tokenFile, []byte(daemon.OperatorToken().Reveal()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return daemon.Address(server.OAP), tokenFile
}

// setAWS sets the variables with credentials of AWS.
func setAWS(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "test")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "test")
	t.Setenv("AWS_SESSION_TOKEN", "")
	t.Setenv("AWS_ENDPOINT_URL", "")
	t.Setenv("AWS_ENDPOINT_URL_SQS", "")
}

func startPostgreSQL(t *testing.T, example *url.URL) (string, url.Values) {
	example.Path = strings.Replace(example.Path, "/shop/", "/postgres/", 1)
	folder, user := pgtest.Start(t, "fsync=off").Socket()
	return "", url.Values{"+host": {folder}, "+user": {user}}
}

// withUser is the key of what replaces parts of an example with a user.
const withUser = "user"

// replacements start what the examples of a scheme need, and return the host and the
// parameters to use instead of those of the example. A parameter that the example does
// not have is left out, except those that keep tests apart.
var replacements = map[string]func(t *testing.T, example *url.URL) (host string, parameters url.Values){
	"memory": func(_ *testing.T, example *url.URL) (string, url.Values) { return example.Host, nil },
	"disk": func(t *testing.T, example *url.URL) (string, url.Values) {
		example.Path = filepath.Join(t.TempDir(), example.Path)
		return "", nil
	},
	"redis": func(t *testing.T, _ *url.URL) (string, url.Values) {
		return redistest.SharedServer(t).Addr(), url.Values{"+prefix": {redistest.Prefix(t)}}
	},
	withUser: func(t *testing.T, example *url.URL) (string, url.Values) {
		password, _ := example.User.Password()
		return redistest.Standalone(t, redistest.User(example.User.Username(), password, "~*", "&*", "+@all")).Addr(), nil
	},
	"rediss": func(t *testing.T, _ *url.URL) (string, url.Values) {
		server := redistest.Standalone(t, redistest.TLS())
		authority, _, _ := server.TLSFiles()
		return server.Addr(), url.Values{"ca": {authority}}
	},
	"redis+sentinel": func(t *testing.T, _ *url.URL) (string, url.Values) {
		option := redistest.SharedSentinel(t).ClientOption()
		return option.InitAddress[0], url.Values{
			"addr": option.InitAddress[1:], "master_set": {option.Sentinel.MasterSet}, "+prefix": {redistest.Prefix(t)},
		}
	},
	"redis+cluster": func(t *testing.T, _ *url.URL) (string, url.Values) {
		option := redistest.Cluster(t, redistest.Replicas(0)).ClientOption()
		return option.InitAddress[0], url.Values{"addr": option.InitAddress[1:]}
	},
	"postgres": startPostgreSQL, "postgresql": startPostgreSQL,
	"sqs": func(t *testing.T, example *url.URL) (string, url.Values) {
		setAWS(t)
		stand := sqstest.Start(t)
		if !example.Query().Has("endpoint") {
			t.Setenv("AWS_ENDPOINT_URL_SQS", stand.Endpoint())
		}
		return example.Host, url.Values{"endpoint": {stand.Endpoint()}}
	},
	"mailbox": func(t *testing.T, _ *url.URL) (string, url.Values) {
		t.Setenv("MAILBOX_TOKEN", "")
		address, tokenFile := startDaemon(t, "", "")
		return address, url.Values{"token_file": {tokenFile}}
	},
	"mailboxs": func(t *testing.T, _ *url.URL) (string, url.Values) {
		authority, certificate, key := redistest.Standalone(t, redistest.TLS()).TLSFiles()
		address, tokenFile := startDaemon(t, certificate, key)
		t.Setenv("MAILBOX_TOKEN", "")
		t.Setenv("MAILBOX_TOKEN_FILE", tokenFile)
		return address, url.Values{"ca": {authority}}
	},
}

// runnable returns the URL of an example, with a server of this test.
func runnable(t *testing.T, example *url.URL) string {
	key := example.Scheme
	if example.User != nil {
		key = withUser
	}
	replace := replacements[key]
	if replace == nil {
		t.Fatalf("no server for scheme %q", example.Scheme)
	}
	parameters := example.Query()
	host, values := replace(t, example)
	for name, value := range values {
		if own, always := strings.CutPrefix(name, "+"); always {
			parameters[own] = value
		} else if parameters.Has(name) {
			parameters[name] = value
		}
	}
	example.Host, example.RawQuery = host, parameters.Encode()
	return example.String()
}

// examples returns the URLs in the last column of the first table of docs/urls.md.
func examples(t *testing.T) []string {
	text, err := os.ReadFile("../../docs/urls.md")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, row := range regexp.MustCompile("(?m)^\\| `\\w+box`.*\\| `([^`|]+)` \\|$").FindAllStringSubmatch(string(text), -1) {
		found = append(found, row[1])
	}
	return found
}

func TestDocumentedURLsSendReceiveAck(t *testing.T) {
	var schemes []string
	for _, text := range examples(t) {
		t.Run(text, func(t *testing.T) {
			example, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			schemes = append(schemes, example.Scheme)
			address := runnable(t, example)
			if example.Scheme != "redis+cluster" { // whose client ends some connections seconds after it is closed
				defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
			}
			exchange(t, address)
		})
	}
	for _, scheme := range driver.URLSchemes() {
		if !slices.Contains(schemes, scheme) {
			t.Errorf("docs/urls.md has no example of the registered scheme %q", scheme)
		}
	}
}

// exchange sends through one mailbox, and receives and acks through another one of the
// same URL.
func exchange(t *testing.T, address string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sender, err := mailbox.OpenURL[string](ctx, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	receiver, err := mailbox.OpenURL[string](ctx, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sender.Send(ctx, "tea"); err != nil {
		t.Fatal(err)
	}
	if err := sender.Close(); err != nil {
		t.Fatal(err)
	}
	messages, err := receiver.Receive(ctx, mailbox.WithWait(30*time.Second))
	if err != nil || len(messages) != 1 || messages[0].Body != "tea" {
		t.Fatalf("got %v, %v", messages, err)
	}
	if err := errors.Join(messages[0].Ack(ctx), receiver.Close()); err != nil {
		t.Error(err)
	}
}

// The packages that errors advise to import are those that register the schemes.
func TestAdvisedPackagesRegisterTheirSchemes(t *testing.T) {
	text, err := os.ReadFile("../../openurl.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, scheme := range driver.URLSchemes() {
		if !regexp.MustCompile(`"` + regexp.QuoteMeta(scheme) + `":\s+"\w+box"`).Match(text) {
			t.Errorf("urlPackages of package mailbox does not have scheme %q", scheme)
		}
	}
}
