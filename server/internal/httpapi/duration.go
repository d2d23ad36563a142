package httpapi

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"time"
)

// A duration is a number of milliseconds in JSON, with up to six decimals, which
// express every time.Duration exactly: 250, 0.5, 4979.767926.
type duration time.Duration

// MarshalJSON writes as few decimals as the value needs.
func (d duration) MarshalJSON() ([]byte, error) {
	whole, rest := int64(d)/int64(time.Millisecond), int64(d)%int64(time.Millisecond)
	text := strconv.AppendInt(nil, whole, 10)
	if rest > 0 {
		decimals := strconv.FormatInt(int64(time.Millisecond)+rest, 10)[1:]
		text = append(append(text, '.'), strings.TrimRight(decimals, "0")...)
	}
	return text, nil
}

// parseDuration reads a number of milliseconds. A number that is too large becomes the
// longest duration, which every limit refuses.
func parseDuration(number json.Number) (duration, bool) {
	text, negative := strings.CutPrefix(number.String(), "-")
	whole, decimals, hasDecimals := strings.Cut(text, ".")
	if hasDecimals && (decimals == "" || len(decimals) > 6) {
		return 0, false
	}
	for _, digits := range []string{whole, decimals} {
		if strings.Trim(digits, "0123456789") != "" {
			return 0, false // an exponent
		}
	}
	value := int64(math.MaxInt64)
	ms, err := strconv.ParseInt(whole, 10, 64)
	ns, _ := strconv.ParseInt((decimals + "000000")[:6], 10, 64) // only digits
	if err == nil && ms < math.MaxInt64/int64(time.Millisecond) {
		value = ms*int64(time.Millisecond) + ns
	}
	if negative {
		value = -value
	}
	return duration(value), true
}
