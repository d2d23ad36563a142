package main

import (
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// answering returns a client of a server that answers each request with these parts, each in
// a write of its own.
func answering(t *testing.T, parts ...string) *sqsConn {
	client, server := net.Pipe()
	t.Cleanup(func() { _ = client.Close() })
	_ = client.SetDeadline(time.Now().Add(3 * time.Second)) // a client that waits for more than there is fails
	go func() {
		defer func() { _ = server.Close() }()
		request := make([]byte, 1<<10)
		for {
			if _, err := server.Read(request); err != nil {
				return
			}
			for _, part := range parts {
				if _, err := server.Write([]byte(part)); err != nil {
					return
				}
			}
		}
	}()
	return &sqsConn{Conn: client}
}

func TestClientReadsAnswersOfEveryServer(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	for _, c := range []struct {
		name  string
		parts []string
		want  string
		err   string
	}{
		{"length", []string{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"}, "{}", ""},
		{"no body", []string{"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"}, "", ""},
		{"in parts", []string{"HTTP/1.1 200 O", "K\r\ncontent-length: 4\r", "\n\r\n{1", "2}"}, "{12}", ""},
		{"long", []string{"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + long}, long, ""},
		{"chunks", []string{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{1\r\na\r\n2345678901\r\n1\r\n}\r\n0\r\n\r\n"}, "{12345678901}", ""},
		{"chunks in parts", []string{"HTTP/1.1 200 OK\r\n\r\n", "2\r", "\n{1\r\n1", "\r\n}\r\n0\r\n", "\r\n"}, "{1}", ""},
		{"refused", []string{"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno"}, "", "HTTP/1.1 403 Forbidden: no"},
		{"neither", []string{"HTTP/1.1 200 OK\r\n\r\n{}\r\n"}, "", "not in chunks"},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := answering(t, c.parts...)
			for range 2 { // the first answer leaves nothing behind
				got, err := client.ask([]byte("request"))
				switch {
				case c.err == "" && (err != nil || string(got) != c.want):
					t.Fatalf("got %d bytes and %v, want %.20q", len(got), err, c.want)
				case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
					t.Fatalf("got error %v, want %q", err, c.err)
				case c.err != "":
					return
				}
			}
			if client.requests != 2 {
				t.Errorf("counted %d requests, want 2", client.requests)
			}
		})
	}
}

func TestTextsOfAnswer(t *testing.T) {
	answer := []byte(`{"Messages":[{"MD5OfBody":"m","Body":"one","ReceiptHandle":"a"},{"ReceiptHandle":"b","Body":""}]}`)
	for name, want := range map[string][]string{"Body": {"one", ""}, "ReceiptHandle": {"a", "b"}, "Id": nil} {
		texts, err := textsOf(nil, answer, name)
		var got []string
		for _, text := range texts {
			got = append(got, string(text))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q and %v, want %q", name, got, err, want)
		}
	}
	for _, undecodable := range []string{`{"Body":"a\nb"}`, `{"Body":"a`} {
		if texts, err := textsOf(nil, []byte(undecodable), "Body"); err == nil {
			t.Errorf("%s: got %q, want an error", undecodable, texts)
		}
	}
}

func TestBatchWithFailureIsRefused(t *testing.T) {
	for answer, ok := range map[string]bool{
		`{"Successful":[{"Id":"0"},{"Id":"1"}]}`:                        true,
		`{"Successful":[{"Id":"0"},{"Id":"1"}],"Failed":[]}`:            true,
		`{"Successful":[{"Id":"0"}],"Failed":[]}`:                       false,
		`{"Successful":[{"Id":"0"}],"Failed":[{"Id":"1","Code":"No"}]}`: false,
	} {
		if err := settled([]byte(answer), 2); err == nil != ok {
			t.Errorf("%s: got %v", answer, err)
		}
	}
}

// expectVerified checks that a mailboxd verifies signatures: otherwise its figures would
// lack that work.
func expectVerified(t *testing.T, mailboxd string) {
	t.Helper()
	stand, err := mailboxdStand(mailboxd, false, overSQS)(t.TempDir(), shapeOf(1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stand.close() }()
	worker := stand.sqs.all[0]
	if err := worker.send(newDaemonBodies(stand.shape)); err != nil {
		t.Fatal(err)
	}
	worker.signer.secret += "x"
	worker.signer.at(time.Now())
	if err := worker.send(newDaemonBodies(stand.shape)); err == nil || !strings.Contains(err.Error(), " 403 ") {
		t.Errorf("signed with another secret: got error %v, want 403", err)
	}
}
