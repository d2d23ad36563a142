package httpapi

import "net/http"

type backupRequest struct {
	Keys bool `json:"keys"`
}

// backup is POST /v1/backup.
func (h *Handler) backup(c *call) error {
	var r backupRequest
	if err := c.decodeOptional(&r); err != nil {
		return err
	}
	return c.caller.Backup(c.ctx(), (*backupStream)(c), r.Keys)
}

// A backupStream writes a backup as the answer to a call. The answer begins with the
// first write, so an earlier failure is an ordinary error; a backup that fails later has
// no end mark, which its reader notices.
type backupStream call

// Write sends a piece of the backup.
func (s *backupStream) Write(p []byte) (int, error) {
	c := (*call)(s)
	if c.status == 0 {
		c.begin(http.StatusOK, "application/x-tar")
	}
	c.allowWrite()
	return c.writer.Write(p)
}
