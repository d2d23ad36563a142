package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
)

// overHTTP lets the workers post JSON, each over a connection that stays open.
func overHTTP(door daemonDoor, stand *daemonStand) error {
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * stand.shape.workers}
	stand.disconnect = func() error {
		transport.CloseIdleConnections()
		return nil
	}
	poster := &httpPoster{client: &http.Client{Transport: transport}, base: "http://" + door.http, token: door.token}
	var keys atomic.Int64 // a send without a key is not taken
	for range stand.shape.workers {
		stand.producers = append(stand.producers, func(bodies [][]byte) error {
			messages := make([]httpMessage, len(bodies))
			for i, body := range bodies {
				messages[i] = httpMessage{IdemKey: strconv.FormatInt(keys.Add(1), 36), Payload: body}
			}
			return poster.send(messages)
		})
		stand.consumers = append(stand.consumers, &httpConsumer{poster: poster, batch: stand.shape.batch})
	}
	return nil
}

type httpMessage struct {
	Queue     string `json:"topic,omitempty"`
	IdemKey   string `json:"idem_key,omitempty"`
	Payload   []byte `json:"payload_b64"`
	MessageID string `json:"msg_id,omitempty"`
	Receipt   string `json:"receipt,omitempty"`
}

type httpResults struct {
	Results []struct {
		OK bool `json:"ok"`
	} `json:"results"`
}

// check fails unless all of n positions succeeded.
func (r *httpResults) check(n int) error {
	if len(r.Results) != n {
		return fmt.Errorf("%d results for %d messages", len(r.Results), n)
	}
	for _, result := range r.Results {
		if !result.OK {
			return errors.New("a message of the batch was refused")
		}
	}
	return nil
}

type httpPoster struct {
	client      *http.Client
	base, token string
}

func (p *httpPoster) post(path string, request, answer any) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r, err := http.NewRequest(http.MethodPost, p.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+p.token)
	response, err := p.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", response.Status, text)
	}
	return json.Unmarshal(text, answer)
}

func (p *httpPoster) send(messages []httpMessage) error {
	if len(messages) > 1 {
		var results httpResults
		request := struct {
			Queue    string        `json:"topic"`
			Messages []httpMessage `json:"messages"`
		}{daemonQueue, messages}
		if err := p.post("/v1/send/batch", request, &results); err != nil {
			return err
		}
		return results.check(len(messages))
	}
	messages[0].Queue = daemonQueue
	var sent struct {
		MessageID string `json:"msg_id"`
		Duplicate bool   `json:"duplicate"`
	}
	if err := p.post("/v1/send", messages[0], &sent); err != nil {
		return err
	}
	if sent.MessageID == "" || sent.Duplicate {
		return errors.New("the message was not taken")
	}
	return nil
}

type httpConsumer struct {
	poster *httpPoster
	batch  int
	got    []httpMessage
}

func (c *httpConsumer) receive() ([][]byte, error) {
	request := struct {
		Queue        string `json:"topic"`
		MaxMessages  int    `json:"max_messages"`
		VisibilityMS int64  `json:"visibility_ms"`
		WaitMS       int64  `json:"wait_ms"`
	}{daemonQueue, c.batch, daemonVisibility.Milliseconds(), daemonWait.Milliseconds()}
	var answer struct {
		Messages []httpMessage `json:"messages"`
	}
	err := c.poster.post("/v1/recv", request, &answer)
	c.got = answer.Messages
	bodies := make([][]byte, len(c.got))
	for i := range c.got {
		bodies[i] = c.got[i].Payload
	}
	return bodies, err
}

func (c *httpConsumer) ack() error {
	if len(c.got) > 1 {
		request := struct {
			Queue    string   `json:"topic"`
			Receipts []string `json:"receipts"`
		}{Queue: daemonQueue}
		for i := range c.got {
			request.Receipts = append(request.Receipts, c.got[i].Receipt)
		}
		var results httpResults
		if err := c.poster.post("/v1/ack", request, &results); err != nil {
			return err
		}
		return results.check(len(c.got))
	}
	request := struct {
		Queue   string `json:"topic"`
		Receipt string `json:"receipt"`
	}{daemonQueue, c.got[0].Receipt}
	var answer struct {
		OK bool `json:"ok"`
	}
	err := c.poster.post("/v1/ack/"+c.got[0].MessageID, request, &answer)
	if err == nil && !answer.OK {
		err = errors.New("the ack was not taken")
	}
	return err
}
