package httpapi

// allTenants, as the tenant of a list of queues, means all tenants.
const allTenants = "*"

// lookIntoTenant lets an operator read the queues of the tenant that the request names.
func (c *call) lookIntoTenant(route Route) (err error) {
	tenant := c.request.Header.Get(headerTenant)
	switch {
	case tenant == "":
		return nil
	case !route.looks:
		return schemaError(headerTenant, "only allows reading a tenant's queues; change them with a token of the tenant")
	case tenant == allTenants && route.Path == "/v1/queues/list":
		c.everyTenant = true
		return nil
	}
	c.caller, err = c.caller.InTenant(c.ctx(), tenant)
	return err
}

// tenantQueueLine is a line in the list of the queues of all tenants.
type tenantQueueLine struct {
	Tenant string `json:"tenant"`
	Queue  string `json:"topic"`
}

// allQueues lists the queues of all tenants.
func (c *call) allQueues() error {
	out := &lines{call: c}
	for queue, err := range c.caller.AllQueues(c.ctx()) {
		if err == nil {
			err = out.addValue(tenantQueueLine{queue.Tenant, queue.Queue})
		}
		if err != nil {
			return out.end(err)
		}
	}
	return out.end(nil)
}
