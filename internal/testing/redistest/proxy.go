package redistest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// An Action says what a Proxy does with a request.
type Action int

// The actions.
const (
	// Pass forwards the request.
	Pass Action = iota
	// CutBefore cuts the connection without forwarding the request: the server never
	// gets it.
	CutBefore
	// CutInside forwards half of the request and cuts the connection: the server cannot
	// execute it.
	CutInside
	// CutAfter forwards the request, waits until the server has executed it, and cuts
	// the connection: the client never gets the answer. If the server is busy with a
	// blocking command of that connection, it may drop later requests.
	CutAfter

	cutRequest
	cutAnswer
	actionKinds
)

// CutRequestAt forwards the first n bytes of the request and cuts the connection.
func CutRequestAt(n int) Action { return Action(n)*actionKinds + cutRequest }

// CutAnswerAt forwards the request and the first n bytes of the answers after it, and cuts
// the connection.
func CutAnswerAt(n int) Action { return Action(n)*actionKinds + cutAnswer }

// A Proxy stands between clients and a server, and breaks connections in chosen ways. It
// parses requests, and so cannot stand in front of TLS. All methods may be called at any
// time, from several goroutines.
type Proxy struct {
	listener net.Listener
	target   string
	ended    chan struct{}
	serving  sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	conns   map[net.Conn]bool
	decide  func(args []string) Action
	rewrite func(args []string) []string
	delay   time.Duration
	refuse  bool
	hole    chan struct{} // not nil: closed when the black hole ends
	closed  bool
}

// NewProxy returns a proxy for the server at an address. It is closed when the
// test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: listener, target: target, ended: make(chan struct{}), conns: make(map[net.Conn]bool)}
	p.serving.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Addr returns the address that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// OnRequest makes decide choose the action for every request from now on. It is called for
// one request of a connection after the other, and for several connections concurrently.
// Nil passes every request.
func (p *Proxy) OnRequest(decide func(args []string) Action) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.decide = decide
}

// Rewrite makes the proxy forward the request that rewrite returns instead of each request
// that passes. So a server can be made to answer as in another state:
//
//	proxy.Rewrite(func([]string) []string { return redistest.ErrorRequest("LOADING …") })
//
// Nil forwards requests as they are.
func (p *Proxy) Rewrite(rewrite func(args []string) []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rewrite = rewrite
}

// ErrorRequest returns a request that a server answers with an error of this text.
func ErrorRequest(text string) []string {
	return []string{"EVAL", "return redis.error_reply(ARGV[1])", "0", text}
}

// Delay makes every request wait for d before it is forwarded.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Blackhole holds back all requests and answers until it is called with false: connections
// stay open without traffic, as when packets get lost.
func (p *Proxy) Blackhole(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case on && p.hole == nil:
		p.hole = make(chan struct{})
	case !on && p.hole != nil:
		close(p.hole)
		p.hole = nil
	}
}

// Refuse makes the proxy cut new connections at once.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Cut cuts all current connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
}

// Connections returns how many clients are connected.
func (p *Proxy) Connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) / 2
}

// Close cuts all connections and stops listening. Closing twice is fine.
func (p *Proxy) Close() {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return
	}
	p.closed = true
	close(p.ended)
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Cut()
	p.serving.Wait()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.serving.Go(func() { p.serve(client) })
	}
}

// serve connects one client with the server until one of them closes.
func (p *Proxy) serve(client net.Conn) {
	defer func() { _ = client.Close() }()
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	if !p.enter(client, server) {
		return
	}
	defer p.leave(client, server)
	w := &wire{proxy: p, client: client, server: server.(*net.TCPConn)}
	var both sync.WaitGroup
	both.Go(w.forwardRequests)
	both.Go(w.forwardAnswers)
	both.Wait()
}

// enter reports whether the connection is accepted.
func (p *Proxy) enter(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.refuse {
		return false
	}
	for _, conn := range conns {
		p.conns[conn] = true
	}
	return true
}

func (p *Proxy) leave(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		delete(p.conns, conn)
	}
}

// hold waits until a black hole has ended, and for the delay.
func (p *Proxy) hold(delayed bool) {
	p.mu.Lock()
	hole, delay := p.hole, p.delay
	p.mu.Unlock()
	if delayed && delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-p.ended:
		}
	}
	if hole != nil {
		select {
		case <-hole:
		case <-p.ended:
		}
	}
}

// action returns the action for a request, and the bytes to forward.
func (p *Proxy) action(raw []byte, args []string) (Action, []byte) {
	p.mu.Lock()
	decide, rewrite := p.decide, p.rewrite
	p.mu.Unlock()
	action := Pass
	if decide != nil {
		action = decide(args)
	}
	if rewrite != nil {
		raw = appendRequest(nil, rewrite(args)...)
	}
	return action, raw
}

// A wire is a client's connection and its connection to the server.
type wire struct {
	proxy  *Proxy
	client net.Conn
	server *net.TCPConn

	mu       sync.Mutex // guards the fields below
	dropping bool       // answers are dropped
	limit    int        // bytes of answers that are still forwarded
}

// forwardRequests forwards the client's requests one by one. At the end it closes its side
// of the server's connection. The server then executes what it got and closes its side too,
// which closes the client's.
func (w *wire) forwardRequests() {
	defer func() { _ = w.server.CloseWrite() }()
	requests := bufio.NewReader(w.client)
	for {
		raw, args, err := readRequest(requests)
		if err != nil {
			return
		}
		w.proxy.hold(true)
		action, raw := w.proxy.action(raw, args)
		n := int(action / actionKinds)
		switch kind := action % actionKinds; kind {
		case CutBefore:
			w.dropAnswers(0)
			return
		case CutInside, cutRequest:
			w.dropAnswers(0)
			if kind == CutInside {
				n = len(raw) / 2
			}
			raw = raw[:min(n, len(raw))]
		case CutAfter, cutAnswer:
			w.dropAnswers(n)
		}
		if _, err := w.server.Write(raw); err != nil || action != Pass {
			return
		}
	}
}

// dropAnswers keeps all further answers from the client, except for some bytes.
func (w *wire) dropAnswers(but int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.dropping, w.limit = true, but
}

// forwardAnswers forwards the server's answers, until it closes its side.
func (w *wire) forwardAnswers() {
	defer func() { _ = w.client.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := w.server.Read(buffer)
		w.proxy.hold(false)
		if err == nil {
			err = w.tell(buffer[:n])
		}
		if err != nil {
			return
		}
	}
}

func (w *wire) tell(answer []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dropping {
		answer = answer[:min(len(answer), w.limit)]
		w.limit -= len(answer)
	}
	if len(answer) == 0 {
		return nil
	}
	_, err := w.client.Write(answer)
	return err
}

// readRequest reads one request, an array of texts, and returns its bytes and
// its texts.
func readRequest(r *bufio.Reader) (raw []byte, args []string, err error) {
	count, raw, err := readLength(r, '*', nil)
	if err != nil {
		return nil, nil, err
	}
	for range count {
		var length int
		if length, raw, err = readLength(r, '$', raw); err != nil {
			return nil, nil, err
		}
		start := len(raw)
		raw = append(raw, make([]byte, length+len("\r\n"))...)
		if _, err := io.ReadFull(r, raw[start:]); err != nil {
			return nil, nil, err
		}
		args = append(args, string(raw[start:start+length]))
	}
	return raw, args, nil
}

// readLength reads a line of a mark and a number, and appends it to raw.
func readLength(r *bufio.Reader, mark byte, raw []byte) (int, []byte, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, nil, err
	}
	if line[0] != mark {
		return 0, nil, fmt.Errorf("redistest: %q is not part of a request", line)
	}
	length, err := strconv.Atoi(strings.TrimSpace(line[1:]))
	return length, append(raw, line...), err
}
