// Package sigv4 reads and verifies AWS Signature Version 4, in the header
// Authorization and in the parameters of a presigned URL.
//
// [Parse] reads the signature of a request without verifying it. [Signed.CheckTime] and
// [Signed.CheckScope] check that it applies to the current time and to this service, and
// [Signed.VerifiedBy] that it was made with a secret. Errors are an *sqswire.Error with
// the messages of AWS.
//
// A signature covers the method, the path, the query, some headers and the body. It must
// cover everything that determines the meaning of a request: the host and, if present,
// the header X-Amz-Target. A signature may leave out the payload only if it is empty,
// because a body could name another queue or another action than the signer intended.
package sigv4
