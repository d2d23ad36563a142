package sqsapi

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/http"
	"strings"
)

// noAccount is the account of callers without a tenant, as in emulators.
const noAccount = "000000000000"

// defaultRegion is that of requests without a signature.
const defaultRegion = "us-east-1"

// accountOf returns the twelve digits of a tenant's account. They are derived from its
// name, so that all daemons agree, and are never those of no tenant.
func accountOf(tenant string) string {
	if tenant == "" {
		return noAccount
	}
	sum := sha256.Sum256([]byte("mailbox tenant " + tenant))
	const accounts = 1_000_000_000_000
	return fmt.Sprintf("%012d", 1+binary.BigEndian.Uint64(sum[:])%(accounts-1))
}

// arnOf returns the ARN of a queue.
func arnOf(region, account, queue string) string {
	return "arn:aws:sqs:" + region + ":" + account + ":" + queue
}

// parseARN reads what arnOf wrote. Partition and region may be any.
func parseARN(arn string) (account, queue string, ok bool) {
	parts := strings.Split(arn, ":")
	if len(parts) != 6 || parts[0] != "arn" || parts[2] != "sqs" || parts[5] == "" {
		return "", "", false
	}
	return parts[4], parts[5], true
}

// isSecure reports whether the client reached the daemon over TLS. A proxy that
// terminates TLS sends a header; a false one only misleads the client that sent it.
func isSecure(r *http.Request) bool {
	return r.TLS != nil || strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https")
}
