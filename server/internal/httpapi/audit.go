package httpapi

import "time"

type auditRequest struct {
	Since string `json:"since"`
	Queue string `json:"queue"`
	Limit int    `json:"limit"`
}

// audit is POST /v1/audit: the recorded changes, oldest first; with a limit the latest.
func (h *Handler) audit(c *call) error {
	var r auditRequest
	if err := c.decodeOptional(&r); err != nil {
		return err
	}
	var since time.Time
	if r.Since != "" {
		var err error
		if since, err = time.Parse(time.RFC3339, r.Since); err != nil {
			return schemaError("since", "want a time like 2026-01-02T03:04:05Z")
		}
	}
	if r.Limit < 0 {
		return schemaError("limit", "is negative; 0 means no limit")
	}
	records, damaged, err := c.caller.Audit(c.ctx())
	if err != nil {
		return err
	}
	wanted := records[:0]
	for _, record := range records {
		if !record.At.Before(since) && (r.Queue == "" || record.Queue == r.Queue) {
			wanted = append(wanted, record)
		}
	}
	if r.Limit > 0 && len(wanted) > r.Limit {
		wanted = wanted[len(wanted)-r.Limit:]
	}
	out := &lines{call: c}
	if damaged > 0 {
		if err := out.addValue(damagedLine{damaged}); err != nil {
			return out.end(err)
		}
	}
	for i := range wanted {
		if err := out.addValue(&wanted[i]); err != nil {
			return out.end(err)
		}
	}
	return out.end(nil)
}

// damagedLine has the number of records that cannot be read.
type damagedLine struct {
	Damaged int `json:"damaged"`
}
