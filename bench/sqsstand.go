package main

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mailboxmq/mailbox/capability"
	"github.com/mailboxmq/mailbox/internal/macaroon"
)

// overSQS lets the workers of a mailboxd speak the protocol of SQS. Signatures are
// verified.
func overSQS(door daemonDoor, stand *daemonStand) error {
	token, err := capability.Parse(door.token)
	if err != nil {
		return err
	}
	keys := macaroon.CredentialsOf(token.RevealBinary(nil))
	return stand.dialSQS(sqsSigner{
		host: door.http, accessKey: keys.AccessKeyID, secret: keys.SecretAccessKey.Reveal(), session: keys.SessionToken,
	})
}

// fauxqsScript runs the emulator from a directory at a port.
const fauxqsScript = `import(require('node:url').pathToFileURL(process.argv[2] + '/node_modules/fauxqs/dist/app.js')).then(async ({ buildApp }) => {
  const server = buildApp({ logger: false })
  server.server.keepAliveTimeout = 60 * 60 * 1000
  await server.listen({ port: Number(process.argv[3]), host: '127.0.0.1' })
})`

// fauxqsPackage is where tools/fauxqs.sh puts the emulator, seen from the folder bench.
var fauxqsPackage = filepath.Join("..", ".cache", "fauxqs", "node_modules", "fauxqs")

// fauxqsInstalled returns the directory in which the emulator is.
func fauxqsInstalled() (string, error) {
	if _, err := os.Stat(fauxqsPackage); err != nil {
		return "", fmt.Errorf("fauxqs: %w; make setup-bench installs it", errMissing)
	}
	return filepath.Abs(filepath.Join(fauxqsPackage, "..", ".."))
}

// startFauxqs starts an emulator on Node.js, which the tests of sqsbox use too, and returns when
// it listens on the addresses in await.
func startFauxqs(dir, installed, address string, await []string) (*daemonProcess, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	// With -e the script is not an argument, so "fauxqs" takes its position.
	return startDaemon(dir, await, "node", "-e", fauxqsScript, "fauxqs", installed, port)
}

func fauxqsStand(dir string, shape daemonShape) (*daemonStand, error) {
	installed, err := fauxqsInstalled()
	if err != nil {
		return nil, err
	}
	return sqsEmulator(shape, func(address string) (*daemonProcess, error) {
		return startFauxqs(dir, installed, address, []string{address})
	})
}

// The emulator in Go, in its newest release; its tags v1 are older.
const (
	goawsModule  = "github.com/Admiral-Piett/goaws"
	goawsVersion = "v0.5.4"
)

// goawsStand builds an emulator in Go from its module and starts it.
func goawsStand(binaries string) func(string, daemonShape) (*daemonStand, error) {
	return func(dir string, shape daemonShape) (*daemonStand, error) {
		binary, err := buildGoaws(filepath.Join(binaries, "goaws"))
		if err != nil {
			return nil, err
		}
		return sqsEmulator(shape, func(address string) (*daemonProcess, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return nil, err
			}
			settings := filepath.Join(dir, "goaws.yaml")
			text := fmt.Sprintf("Local:\n  Host: 127.0.0.1\n  Port: %s\n  Region: %s\n  AccountId: \"000000000000\"\n", port, sqsRegion)
			if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
				return nil, err
			}
			return startDaemon(dir, []string{address}, binary, "-config", settings, "-loglevel", "error")
		})
	}
}

// buildGoaws builds the emulator in a module of its own, so that this one does not require
// it.
func buildGoaws(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	module := "module emulator\n\ngo 1.26\n\nrequire " + goawsModule + " " + goawsVersion + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(module), 0o600); err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "goaws")
	build := exec.Command("go", "build", "-mod=mod", "-o", binary, goawsModule+"/app/cmd")
	build.Dir = dir
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("goaws: %w: %v: %s", errMissing, err, strings.ReplaceAll(strings.TrimSpace(string(output)), "\n", "; "))
	}
	return binary, nil
}

// sqsEmulator starts a server at a free port and connects the workers. Emulators do not
// check signatures; the requests have them all the same.
func sqsEmulator(shape daemonShape, start func(address string) (*daemonProcess, error)) (*daemonStand, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	process, err := start(address)
	if err != nil {
		return nil, err
	}
	stand := &daemonStand{process: process, shape: shape}
	if err := stand.dialSQS(sqsSigner{host: address, accessKey: "test", secret: "test"}); err != nil {
		return nil, errors.Join(err, stand.close())
	}
	return stand, nil
}

// dialSQS creates the queue and connects the workers, each with a connection.
func (s *daemonStand) dialSQS(signer sqsSigner) error {
	s.sqs = &sqsWorkers{batch: s.shape.batch}
	for i := range 2 * s.shape.workers {
		connection, err := net.Dial("tcp", signer.host)
		if err != nil {
			return err
		}
		s.onDisconnect(connection.Close)
		w := &sqsWorker{sqsConn: sqsConn{Conn: connection}, signer: signer, batch: s.shape.batch}
		s.sqs.all = append(s.sqs.all, w)
		if i < s.shape.workers {
			s.producers = append(s.producers, w.send)
		} else {
			s.consumers = append(s.consumers, w)
		}
	}
	s.sqs.sign(time.Now())
	return s.sqs.createQueue()
}

// sqsWorkers are the workers of a server that speaks the protocol of SQS, and the requests
// that they send next.
type sqsWorkers struct {
	all      []*sqsWorker
	batch    int
	prepared []byte
	ends     []int // of each request in prepared
	next     atomic.Int64
}

func (s *sqsWorkers) createQueue() error {
	w := s.all[0]
	answer, err := w.call("CreateQueue", fmt.Appendf(nil, `{"QueueName":%q}`, daemonQueue))
	if err != nil {
		return err
	}
	urls, err := textsOf(nil, answer, "QueueUrl")
	if err != nil || len(urls) != 1 {
		return fmt.Errorf("CreateQueue: got %q: %w", answer, err)
	}
	url := string(urls[0])
	for _, w := range s.all {
		w.queue = `"QueueUrl":"` + url + `"`
	}
	return nil
}

// sign makes all workers sign with the current time.
func (s *sqsWorkers) sign(now time.Time) {
	for _, w := range s.all {
		w.signer.at(now)
		w.receives = nil
	}
}

// prepare signs sends of a run: as many batches as given.
func (s *sqsWorkers) prepare(r *daemonRun, batches int, shape daemonShape) {
	s.sign(time.Now())
	s.prepared, s.ends = s.prepared[:0], s.ends[:0]
	s.next.Store(0)
	bodies := newDaemonBodies(shape)
	for range batches {
		for _, body := range bodies {
			r.stamp(body)
		}
		s.prepared = s.all[0].appendSend(s.prepared, bodies)
		s.ends = append(s.ends, len(s.prepared))
	}
}

// take returns the next prepared request, nil after the last.
func (s *sqsWorkers) take() []byte {
	i := int(s.next.Add(1)) - 1
	if i >= len(s.ends) {
		return nil
	}
	from := 0
	if i > 0 {
		from = s.ends[i-1]
	}
	return s.prepared[from:s.ends[i]]
}

// requests returns how many requests were sent. No worker may run.
func (s *sqsWorkers) requests() uint64 {
	sum := uint64(0)
	if s != nil {
		for _, w := range s.all {
			sum += w.requests
		}
	}
	return sum
}

// An sqsWorker produces or consumes. Queues take text only: bodies are in base64.
type sqsWorker struct {
	sqsConn
	signer sqsSigner
	batch  int
	queue  string // as member of a request

	receives       []byte // the request that receives
	body, request  []byte
	texts, handles [][]byte // of the last answer, in its memory
	decoded        [][]byte // texts
}

// call signs and sends a request.
func (w *sqsWorker) call(action string, body []byte) ([]byte, error) {
	w.request = w.signer.append(w.request[:0], action, body)
	answer, err := w.ask(w.request)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", action, err)
	}
	return answer, nil
}

// settled fails unless an answer to a batch says that all of n messages succeeded.
func settled(answer []byte, n int) error {
	if ids, err := textsOf(nil, answer, "Id"); err != nil || len(ids) != n || strings.Contains(string(answer), `"Failed":[{`) {
		return fmt.Errorf("of %d messages of a batch not all succeeded: %.300s", n, answer)
	}
	return nil
}

// appendSend appends a request that sends bodies to b.
func (w *sqsWorker) appendSend(b []byte, bodies [][]byte) []byte {
	if len(bodies) == 1 {
		w.body = append(base64.StdEncoding.AppendEncode(append(w.body[:0], `{"MessageBody":"`...), bodies[0]), `",`...)
		w.body = append(append(w.body, w.queue...), '}')
		return w.signer.append(b, "SendMessage", w.body)
	}
	w.beginBatch()
	for i, body := range bodies {
		w.entry(i, "MessageBody")
		w.body = append(base64.StdEncoding.AppendEncode(w.body, body), `"}`...)
	}
	w.endBatch()
	return w.signer.append(b, "SendMessageBatch", w.body)
}

func (w *sqsWorker) beginBatch() { w.body = append(w.body[:0], `{"Entries":[`...) }

// entry begins the part of a batch for message i, up to its first text.
func (w *sqsWorker) entry(i int, name string) {
	if i > 0 {
		w.body = append(w.body, ',')
	}
	w.body = strconv.AppendInt(append(w.body, `{"Id":"`...), int64(i), 10)
	w.body = append(append(append(w.body, `","`...), name...), `":"`...)
}

func (w *sqsWorker) endBatch() {
	w.body = append(append(append(w.body, `],`...), w.queue...), '}')
}

// send signs and sends bodies.
func (w *sqsWorker) send(bodies [][]byte) error {
	w.request = w.appendSend(w.request[:0], bodies)
	return w.post(w.request)
}

// post sends a request that sends a batch.
func (w *sqsWorker) post(request []byte) error {
	answer, err := w.ask(request)
	if err == nil && w.batch > 1 {
		err = settled(answer, w.batch)
	}
	return err
}

func (w *sqsWorker) receive() ([][]byte, error) {
	if w.receives == nil {
		w.receives = w.signer.append(nil, "ReceiveMessage", fmt.Appendf(nil, `{"MaxNumberOfMessages":%d,%s,"VisibilityTimeout":%d,"WaitTimeSeconds":1}`,
			w.batch, w.queue, int(daemonVisibility.Seconds())))
	}
	answer, err := w.ask(w.receives)
	if err != nil {
		return nil, err
	}
	if w.texts, err = textsOf(w.texts[:0], answer, "Body"); err != nil {
		return nil, err
	}
	if w.handles, err = textsOf(w.handles[:0], answer, "ReceiptHandle"); err != nil || len(w.handles) != len(w.texts) {
		return nil, fmt.Errorf("%d bodies and %d receipts: %w", len(w.texts), len(w.handles), err)
	}
	for len(w.decoded) < len(w.texts) {
		w.decoded = append(w.decoded, nil)
	}
	for i, text := range w.texts {
		if w.decoded[i], err = base64.StdEncoding.AppendDecode(w.decoded[i][:0], text); err != nil {
			return nil, err
		}
	}
	return w.decoded[:len(w.texts)], nil
}

// ack deletes what was received last: the receipts are still in the memory of the answer.
func (w *sqsWorker) ack() error {
	if len(w.handles) == 1 {
		w.body = append(append(append(w.body[:0], '{'), w.queue...), `,"ReceiptHandle":"`...)
		w.body = append(append(w.body, w.handles[0]...), `"}`...)
		_, err := w.call("DeleteMessage", w.body)
		return err
	}
	w.beginBatch()
	for i, handle := range w.handles {
		w.entry(i, "ReceiptHandle")
		w.body = append(append(w.body, handle...), `"}`...)
	}
	w.endBatch()
	answer, err := w.call("DeleteMessageBatch", w.body)
	if err == nil {
		err = settled(answer, len(w.handles))
	}
	return err
}
