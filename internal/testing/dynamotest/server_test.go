package dynamotest_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/mailboxmq/mailbox/internal/testing/dynamotest"
)

func TestMain(m *testing.M) { dynamotest.Main(m) }

func list(ctx context.Context, client *dynamodb.Client) error {
	_, err := client.ListTables(ctx, &dynamodb.ListTablesInput{}, func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} })
	return err
}

func TestServerAnswersUntilItIsClosed(t *testing.T) {
	server := dynamotest.Start(t)
	if err := list(t.Context(), server.Client()); err != nil {
		t.Fatal(err)
	}
	server.Close()
	address := strings.TrimPrefix(server.Endpoint(), "http://")
	if conn, err := net.Dial("tcp", address); err == nil {
		conn.Close()
		t.Errorf("%s still accepts connections after Close", address)
	}
}

func TestBubbleTimeStandsStillDuringRequest(t *testing.T) {
	client := dynamotest.Shared(t).Client()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		if err := list(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("a request took %v of the bubble's time", took)
		}
		time.Sleep(time.Hour)
		if err := list(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != time.Hour {
			t.Errorf("an hour took %v", took)
		}
	})
}

func TestUnansweredRequestEndsWithContext(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	client := dynamotest.Shared(t).Client(func(o *dynamodb.Options) {
		o.BaseEndpoint = aws.String("http://" + silent.Addr().String())
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := list(ctx, client); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v from a server that does not answer", err)
	}
	if err := list(t.Context(), dynamotest.Shared(t).Client()); err != nil {
		t.Errorf("got %v after a cancelled request", err)
	}
}
