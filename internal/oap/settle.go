package oap

import (
	"math"

	"github.com/mailboxmq/mailbox/driver"
)

// AppendAck writes the payload of OpAck.
func AppendAck(dst []byte, t Target, receipts []driver.Receipt) []byte {
	dst = appendNumber(AppendTarget(dst, t), uint64(len(receipts)))
	for i := range receipts {
		dst = appendReceipt(dst, &receipts[i])
	}
	return dst
}

// ParseAck reads the payload of OpAck and adds its receipts to receipts.
func ParseAck(payload []byte, receipts []driver.Receipt) (Target, []driver.Receipt, error) {
	r := reader{rest: payload}
	t := r.target()
	for range r.count(1) {
		receipts = append(receipts, r.receipt())
		if r.err != nil {
			break
		}
	}
	return t, receipts, r.end()
}

// AppendNack writes the payload of OpNack.
func AppendNack(dst []byte, t Target, nacks []driver.Nack) []byte {
	dst = appendNumber(AppendTarget(dst, t), uint64(len(nacks)))
	for i := range nacks {
		dst = appendReceipt(dst, &nacks[i].Receipt)
		dst = appendDuration(dst, nacks[i].Delay)
		dst = appendText(dst, driver.TrimCause(nacks[i].Cause))
	}
	return dst
}

// ParseNack reads the payload of OpNack and adds its nacks to nacks.
func ParseNack(payload []byte, nacks []driver.Nack) (Target, []driver.Nack, error) {
	r := reader{rest: payload}
	t := r.target()
	for range r.count(1 + 2) {
		nacks = append(nacks, driver.Nack{Receipt: r.receipt(), Delay: r.duration(), Cause: r.text()})
		if r.err != nil {
			break
		}
	}
	return t, nacks, r.end()
}

// AppendRelease writes the payload of OpRelease.
func AppendRelease(dst []byte, t Target, nacks []driver.Nack) []byte {
	dst = appendNumber(AppendTarget(dst, t), uint64(len(nacks)))
	for i := range nacks {
		dst = appendReceipt(dst, &nacks[i].Receipt)
		dst = appendDuration(dst, nacks[i].Delay)
		dst = appendText(dst, driver.TrimCause(nacks[i].Cause))
		dst = append(dst, byte(nacks[i].Mode))
	}
	return dst
}

// ParseRelease reads the payload of OpRelease and adds its nacks to nacks.
func ParseRelease(payload []byte, nacks []driver.Nack) (Target, []driver.Nack, error) {
	r := reader{rest: payload}
	t := r.target()
	for range r.count(1 + 3) {
		nacks = append(nacks, driver.Nack{Receipt: r.receipt(), Delay: r.duration(), Cause: r.text(), Mode: driver.NackMode(r.byte())})
		if r.err != nil {
			break
		}
	}
	return t, nacks, r.end()
}

// AppendExtend writes the payload of OpExtend.
func AppendExtend(dst []byte, t Target, extensions []driver.Extension) []byte {
	dst = appendNumber(AppendTarget(dst, t), uint64(len(extensions)))
	for i := range extensions {
		dst = appendReceipt(dst, &extensions[i].Receipt)
		dst = appendDuration(dst, extensions[i].Visibility)
	}
	return dst
}

// ParseExtend reads the payload of OpExtend and adds its extensions to
// extensions.
func ParseExtend(payload []byte, extensions []driver.Extension) (Target, []driver.Extension, error) {
	r := reader{rest: payload}
	t := r.target()
	for range r.count(1 + 1) {
		extensions = append(extensions, driver.Extension{Receipt: r.receipt(), Visibility: r.duration()})
		if r.err != nil {
			break
		}
	}
	return t, extensions, r.end()
}

// AppendExtendProgress writes the payload of OpExtendProgress.
func AppendExtendProgress(dst []byte, t Target, extensions []driver.Extension) []byte {
	dst = appendNumber(AppendTarget(dst, t), uint64(len(extensions)))
	for i := range extensions {
		e := &extensions[i]
		dst = appendDuration(appendReceipt(dst, &e.Receipt), e.Visibility)
		dst = appendFlag(dst, e.Progress != nil)
		if e.Progress != nil {
			dst = appendProgress(dst, *e.Progress)
		}
	}
	return dst
}

// ParseExtendProgress reads the payload of OpExtendProgress and adds its extensions to
// extensions.
func ParseExtendProgress(payload []byte, extensions []driver.Extension) (Target, []driver.Extension, error) {
	r := reader{rest: payload}
	t := r.target()
	for range r.count(1 + 1 + 1) {
		e := driver.Extension{Receipt: r.receipt(), Visibility: r.duration()}
		if r.flag() {
			progress := r.progress()
			e.Progress = &progress
		}
		extensions = append(extensions, e)
		if r.err != nil {
			break
		}
	}
	return t, extensions, r.end()
}

// fractions is the number of steps from 0 to 1 that the wire has for a fraction.
const fractions = 10_000

// appendProgress writes a report: its fraction as a number of steps, from 1 for none done, and 0
// for an unknown one, and its text.
func appendProgress(dst []byte, p driver.Progress) []byte {
	steps := uint64(0)
	if p.Fraction >= 0 {
		steps = 1 + uint64(math.Round(min(p.Fraction, 1)*fractions))
	}
	return appendText(appendNumber(dst, steps), p.Text)
}

func (r *reader) progress() driver.Progress {
	p := driver.Progress{Fraction: -1}
	switch steps := r.number(); {
	case steps > 1+fractions:
		r.fail("a fraction is more than 1")
	case steps > 0:
		p.Fraction = float64(steps-1) / fractions
	}
	p.Text = r.text()
	return p
}

// AppendDeadLetterRequests writes the payload of OpDeadLetter.
func AppendDeadLetterRequests(dst []byte, t Target, requests []driver.DeadLetterRequest) []byte {
	dst = appendNumber(AppendTarget(dst, t), uint64(len(requests)))
	for i := range requests {
		dst = appendReceipt(dst, &requests[i].Receipt)
		dst = appendText(dst, string(requests[i].Reason))
		dst = appendText(dst, driver.TrimCause(requests[i].Error))
		dst = appendText(dst, driver.TrimCause(requests[i].ErrorType))
	}
	return dst
}

// ParseDeadLetterRequests reads the payload of OpDeadLetter and adds its requests to requests.
func ParseDeadLetterRequests(payload []byte, requests []driver.DeadLetterRequest) (Target, []driver.DeadLetterRequest, error) {
	r := reader{rest: payload}
	t := r.target()
	for range r.count(1 + 3) {
		requests = append(requests, driver.DeadLetterRequest{
			Receipt: r.receipt(), Reason: driver.Reason(r.text()), Error: r.text(), ErrorType: r.text(),
		})
		if r.err != nil {
			break
		}
	}
	return t, requests, r.end()
}

func (r *reader) receipt() driver.Receipt { return driver.Receipt{Handle: r.text()} }
