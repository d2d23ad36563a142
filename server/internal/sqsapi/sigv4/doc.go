// Package sigv4 reads and verifies AWS Signature Version 4, in the header
// Authorization and in the parameters of a presigned URL.
//
// [Parse] says who claims to have signed a request, [Signed.CheckTime] and
// [Signed.CheckScope] whether the signature is meant for here and now, and
// [Signed.VerifiedBy] whether it was made with a secret. Errors are an
// *sqswire.Error, in the words of AWS.
//
// A signature covers the method, the path, the query, some headers and the body.
// What decides about the meaning of a request has to be covered: the host and,
// if there is one, the header X-Amz-Target. A payload may be left out of a
// signature only if there is none, because a body could name another queue or
// another action than the signer had in mind.
package sigv4
