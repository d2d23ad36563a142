package sigv4_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/mailboxmq/mailbox/server/internal/sqsapi/sigv4"
)

// TestPresignedSignatureIsRefusedInHeader copies the signature of a presigned URL into
// the header Authorization. Both cover the same text, and a header would have no expiry.
func TestPresignedSignatureIsRefusedInHeader(t *testing.T) {
	r := presign(t, "http://localhost/?Action=ReceiveMessage&QueueUrl=q", emptyHash, "60")
	query := r.URL.Query()
	r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s, SignedHeaders=%s, Signature=%s",
		query.Get("X-Amz-Credential"), query.Get("X-Amz-SignedHeaders"), query.Get("X-Amz-Signature")))
	r.Header.Set("X-Amz-Date", query.Get("X-Amz-Date"))
	r.Header.Set("X-Amz-Security-Token", query.Get("X-Amz-Security-Token"))
	for _, without := range []string{"", "X-Amz-Signature"} {
		query.Del(without)
		r.URL.RawQuery = query.Encode()
		signed, err := sigv4.Parse(r)
		if err == nil {
			err = signed.CheckTime(testTime.Add(2 * time.Minute))
		}
		if err == nil {
			t.Errorf("without %q: it is accepted after its expiry", without)
		}
	}
}
