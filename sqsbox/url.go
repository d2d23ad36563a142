package sqsbox

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/mailboxmq/mailbox/driver"
	"github.com/mailboxmq/mailbox/internal/opening"
)

const urlScheme = "sqs"

func init() { driver.RegisterURL(readURL, urlScheme) }

// readURL reads a URL of mailbox.OpenURL: sqs://REGION/QUEUE, with the parameters
// endpoint, create and prefix. Credentials are those of the environment.
func readURL(address *url.URL) (driver.URLTarget, error) {
	parameters, err := opening.ReadParameters(address, "endpoint", "create", "prefix")
	if err != nil {
		return driver.URLTarget{}, err
	}
	plain := *address
	plain.RawQuery, plain.ForceQuery = "", false
	region, name, err := readAddress(&plain)
	switch {
	case err != nil:
	case name == "":
		err = addressError("queue", "is missing; want sqs://REGION/QUEUE")
	default:
		err = driver.CheckName(name)
	}
	if err != nil {
		return driver.URLTarget{}, err
	}
	options := Options{Prefix: parameters.Get("prefix"), Create: parameters.Get("create") == "true"}
	if create := parameters.Get("create"); parameters.Has("create") && create != "true" && create != "false" {
		return driver.URLTarget{}, addressError("query", "parameter create: want true or false")
	}
	endpoint, err := endpointOf(parameters.Get("endpoint"))
	if err != nil {
		return driver.URLTarget{}, err
	}
	key, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	if key == "" || secret == "" {
		return driver.URLTarget{}, &driver.Error{
			Code: driver.ErrUnauthenticated, Op: "open", Field: "credentials",
			Detail: "are missing; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_SESSION_TOKEN if there is one; for profiles and roles make a client with the AWS SDK, and use sqsbox.Open",
		}
	}
	provider := credentials.NewStaticCredentialsProvider(key, secret, os.Getenv("AWS_SESSION_TOKEN"))
	target := driver.URLTarget{Queue: name, Key: strings.Join([]string{
		region, endpoint, options.Prefix, parameters.Get("create"), key, secret, os.Getenv("AWS_SESSION_TOKEN"),
	}, "\x00")}
	target.Open = func(ctx context.Context) (driver.Backend, error) {
		// The transport is the backend's own, so that closing the backend ends its connections.
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.MaxIdleConnsPerHost = 64
		settings := sqs.Options{Region: region, Credentials: provider, HTTPClient: &http.Client{Transport: transport}}
		if endpoint != "" {
			settings.BaseEndpoint = aws.String(endpoint)
		}
		backend, err := Open(ctx, sqs.New(settings), &options)
		if err != nil {
			return nil, err
		}
		return &ownedBackend{backend, transport}, nil
	}
	return target, nil
}

// endpointOf returns the endpoint of a URL, or else that of the environment, or else "",
// which is AWS.
func endpointOf(given string) (string, error) {
	for _, endpoint := range []string{given, os.Getenv("AWS_ENDPOINT_URL_SQS"), os.Getenv("AWS_ENDPOINT_URL")} {
		if endpoint == "" {
			continue
		}
		parsed, err := url.Parse(endpoint)
		if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Host == "" {
			return "", addressError("endpoint", "is not a URL; want http://HOST:PORT or https://HOST:PORT, in the parameter endpoint or in AWS_ENDPOINT_URL_SQS")
		}
		return endpoint, nil
	}
	return "", nil
}

// An ownedBackend is a backend with the connections of its client.
type ownedBackend struct {
	*Backend
	transport *http.Transport
}

// OpenQueue is that of the backend, with advice on the URL.
func (b *ownedBackend) OpenQueue(ctx context.Context, name string) (driver.Queue, error) {
	queue, err := b.Backend.OpenQueue(ctx, name)
	var advised driver.Error
	if e, ok := errors.AsType[*driver.Error](err); ok && e.Detail == "" {
		advised = *e
	}
	switch advised.Code {
	case driver.ErrNotFound:
		advised.Detail = "create the queue, or add ?create=true"
	case driver.ErrUnavailable:
		advised.Field, advised.Detail = "endpoint", "cannot reach SQS; check the region, and the endpoint in the URL or in AWS_ENDPOINT_URL_SQS"
	default:
		return queue, err
	}
	return nil, &advised
}

func (b *ownedBackend) Close() error {
	err := b.Backend.Close()
	b.transport.CloseIdleConnections()
	return err
}

// URLOpener returns a registry.Scheme: a function, safe for concurrent use, that opens
// the queue that an address like sqs://eu-central-1/orders names. Addresses come from
// senders of requests, so they lead only to the given regions, through backends that are
// open, with the credentials of their clients. An address with a user, a port or
// parameters is refused. The function blocks as OpenQueue does. Its codes are ErrInvalid,
// ErrForbidden (the address names another region), and those of OpenQueue.
//
// The regions are given by name, like eu-central-1, and the caller closes the backends.
// URLOpener does no I/O. Codes: ErrInvalid, ErrConflict (a region is there twice).
func URLOpener(regions map[string]*Backend) (func(ctx context.Context, address *url.URL) (driver.Queue, error), error) {
	byName := make(map[string]*Backend, len(regions)) // in lower case
	for name, backend := range regions {
		region := strings.ToLower(name)
		if host := (&url.URL{Host: region}).Hostname(); region == "" || host != region || strings.ContainsAny(region, "/?#@ ") {
			return nil, addressError("region", "is not the name of a region, like eu-central-1")
		}
		if byName[region] != nil {
			return nil, &driver.Error{Code: driver.ErrConflict, Op: "open", Field: "region", Detail: region + " is there twice"}
		}
		byName[region] = backend
	}
	return func(ctx context.Context, address *url.URL) (driver.Queue, error) {
		region, name, err := readAddress(address)
		if err != nil {
			return nil, err
		}
		backend := byName[region]
		if backend == nil {
			return nil, &driver.Error{Code: driver.ErrForbidden, Op: "open", Field: "host", Detail: "is not one of the regions that may be used"}
		}
		return backend.OpenQueue(ctx, name)
	}, nil
}

func addressError(field, detail string) error {
	return &driver.Error{Code: driver.ErrInvalid, Op: "open", Field: field, Detail: detail}
}

// readAddress returns the region and the queue that an address names. It refuses parts
// that an address of this scheme cannot have.
func readAddress(address *url.URL) (region, name string, err error) {
	switch {
	case address.Scheme != urlScheme:
		err = addressError("scheme", "is not "+urlScheme)
	case address.Opaque != "" || address.Hostname() == "":
		err = addressError("host", "is missing; want sqs://REGION/QUEUE")
	case address.Port() != "":
		err = addressError("host", "is a region, which has no port; want sqs://REGION/QUEUE, and the server of another SQS as its client's endpoint")
	case address.User != nil:
		err = addressError("user", "is not allowed in an address; credentials are those of the client, or of the environment")
	case address.RawQuery != "" || address.ForceQuery:
		err = addressError("query", "is not allowed in an address; write ? in a name as %3F")
	case address.Fragment != "":
		err = addressError("fragment", "is not allowed in an address; write # in a name as %23")
	}
	if err != nil {
		return "", "", err
	}
	return strings.ToLower(address.Hostname()), strings.TrimPrefix(address.Path, "/"), nil
}
