package urlrules_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox"
	"github.com/mailboxmq/mailbox/internal/testing/redistest"
	"github.com/mailboxmq/mailbox/internal/testing/sqstest"
)

// closedPort returns an address on which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func TestMistakesInURLsSayWhatToDo(t *testing.T) {
	setAWS(t)
	t.Setenv("MAILBOX_TOKEN", "")
	t.Setenv("MAILBOX_TOKEN_FILE", "")
	dir := t.TempDir()
	notDirectory := filepath.Join(dir, "file")
	if err := os.WriteFile(notDirectory, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	secured := redistest.Standalone(t, redistest.User("shop", "SECRET", "~*", "&*", "+@all")).Addr()
	single := redistest.SharedServer(t).Addr()
	daemon, token := startDaemon(t, "", "")
	closed := closedPort(t)
	sqs := sqstest.Start(t).Endpoint()
	for _, test := range []struct {
		url  string
		code mailbox.Code
		want string
	}{
		{"redsi://h/q", mailbox.ErrUnresolved, `"redsi" is not registered`},
		{"redsi://h/q", mailbox.ErrUnresolved, "registered: disk, mailbox, mailboxs, memory, postgres, postgresql, redis, redis+cluster, redis+sentinel, rediss, sqs"},

		{"disk://" + notDirectory + "?queue=q", mailbox.ErrInvalid, "file"},
		{"disk://" + notDirectory + "/below?queue=q", mailbox.ErrUnavailable, "not a directory"},
		{"disk:///proc/shop?queue=q", mailbox.ErrUnavailable, "/proc/shop"},

		{"redis://" + closed + "/q", mailbox.ErrUnavailable, "cannot connect to Redis; check that it runs, HOST:PORT, and whether it wants TLS (rediss)"},
		{"redis://shop:WRONGSECRET@" + secured + "/q", mailbox.ErrUnauthenticated, "the server wants another user or password"},
		{"redis://" + secured + "/q", mailbox.ErrUnauthenticated, "the server wants another user or password"},
		{"redis://" + single, mailbox.ErrInvalid, "queue: is missing; want redis://HOST:PORT/QUEUE"},
		{"redis:///q", mailbox.ErrInvalid, "host: is missing; want redis://HOST:PORT/QUEUE"},
		{"redis://" + single + "/q?database=2", mailbox.ErrInvalid, `unknown parameter "database"; want db, prefix, replicas, tls, ca, master_set, addr`},
		{"redis://" + single + "/q?db=x", mailbox.ErrInvalid, `"x" is not the number of a database`},
		{"redis://" + single + "/q?addr=h:1", mailbox.ErrInvalid, "addr is for redis+sentinel and redis+cluster"},
		{"redis://" + single + "/q?tls=true", mailbox.ErrInvalid, "want rediss://HOST:PORT/QUEUE"},
		{"redis://" + single + "/q?ca=" + notDirectory, mailbox.ErrInvalid, "want rediss://HOST:PORT/QUEUE"},
		{"rediss://" + single + "/q?ca=" + notDirectory, mailbox.ErrInvalid, "has no certificate; want a file with certificates in PEM form"},
		{"rediss://" + single + "/q?ca=" + dir + "/none", mailbox.ErrInvalid, "ca: cannot be read"},
		{"redis+cluster://" + single + "/q", mailbox.ErrInvalid, "the server is not a cluster; want redis://HOST:PORT/QUEUE"},
		{"redis+cluster://" + single + "/q?db=1", mailbox.ErrInvalid, "a cluster has database 0 only"},
		{"redis+sentinel://" + single + "/q", mailbox.ErrInvalid, "parameter master_set is missing"},

		{"postgres://shop:SECRET@" + closed + "/shop/q", mailbox.ErrUnavailable, "cannot connect to PostgreSQL at " + closed + "; check that it runs, the user, the password and the database"},
		{"postgres://h/shop", mailbox.ErrInvalid, "queue: is missing; want postgres://USER:PASSWORD@HOST:PORT/DATABASE/QUEUE"},
		{"postgres://h", mailbox.ErrInvalid, "database: is missing; want postgres://USER:PASSWORD@HOST:PORT/DATABASE/QUEUE"},
		{"postgres:///shop/q", mailbox.ErrInvalid, "host: is missing; want postgres://USER:PASSWORD@HOST:PORT/DATABASE/QUEUE"},
		{"postgres://h/shop/q?ssl=true", mailbox.ErrInvalid, `unknown parameter "ssl"; want schema, poll_only, host`},
		{"postgres://h/shop/q?schema=a-b", mailbox.ErrInvalid, `Schema: "a-b"; want at most 63 of a to z, 0 to 9 and _`},
		{"postgres://shop:SECRET@h/shop/q?sslmode=x", mailbox.ErrInvalid, "cannot be read; want postgres://"},

		{"sqs://eu-central-1/q?endpoint=127.0.0.1:1", mailbox.ErrInvalid, "want http://HOST:PORT or https://HOST:PORT"},
		{"sqs://eu-central-1/q?create=yes", mailbox.ErrInvalid, "want true or false"},
		{"sqs://eu-central-1/q?endpoint=" + sqs, mailbox.ErrNotFound, "create the queue, or add ?create=true"},
		{"sqs://eu-central-1/q?endpoint=http://" + closed, mailbox.ErrUnavailable, "check the region, and the endpoint in the URL or in AWS_ENDPOINT_URL_SQS"},
		{"sqs://eu-central-1", mailbox.ErrInvalid, "queue: is missing; want sqs://REGION/QUEUE"},
		{"sqs://127.0.0.1:9324/q", mailbox.ErrInvalid, "want sqs://REGION/QUEUE"},
		{"sqs://key:SECRET@eu-central-1/q", mailbox.ErrInvalid, "credentials are those of the client, or of the environment"},

		{"mailbox://" + daemon + "/q", mailbox.ErrUnauthenticated, "name its file with ?token_file=FILE or MAILBOX_TOKEN_FILE, or set MAILBOX_TOKEN"},
		{"mailbox://" + daemon + "/q?token_file=" + dir + "/none", mailbox.ErrUnauthenticated, "parameter token_file names a file that cannot be read"},
		{"mailbox://" + daemon + "/q?token_file=" + notDirectory, mailbox.ErrUnauthenticated, "token"},
		{"mailbox://" + daemon + "/q?token=SECRET", mailbox.ErrInvalid, `unknown parameter "token"; want token_file, ca`},
		{"mailbox://SECRET@" + daemon + "/q", mailbox.ErrInvalid, "a token is in a file or in the environment"},
		{"mailbox://queues.example.com/q?token_file=" + token, mailbox.ErrInvalid, "want mailboxs://HOST:PORT/QUEUE"},
		{"mailbox://" + daemon + "/q?ca=" + token + "&token_file=" + token, mailbox.ErrInvalid, "parameter ca is for TLS; want mailboxs://HOST:PORT/QUEUE"},
		{"mailbox://" + closed + "/q?token_file=" + token, mailbox.ErrUnavailable, "cannot connect to mailboxd; check that it runs, HOST:PORT (frames, 9411 by default)"},
		{"mailboxs://" + daemon + "/q?token_file=" + token, mailbox.ErrUnavailable, "does not speak TLS; want mailbox://HOST:PORT/QUEUE"},
		{"mailbox://" + daemon + "?token_file=" + token, mailbox.ErrInvalid, "queue: is missing; want mailbox://HOST:PORT/QUEUE"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		_, err := mailbox.OpenURL[string](ctx, test.url, nil)
		cancel()
		if !errors.Is(err, test.code) || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: got %v, want %s and %q", test.url, err, test.code, test.want)
		}
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	if _, err := mailbox.OpenURL[string](t.Context(), "sqs://eu-central-1/q", nil); !errors.Is(err, mailbox.ErrUnauthenticated) ||
		!strings.Contains(err.Error(), "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY") {
		t.Errorf("without credentials: %v", err)
	}
}
