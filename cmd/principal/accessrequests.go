package main

import (
	"github.com/argomesh/argomesh/fleet/accessrequests"
)

// newAccessRequests returns what makes out tokens to people, for the principal that holds the
// Lease; nil where there are no tokens, or none for people. It starts nothing.
func newAccessRequests(c *hubCore, credentials liveCredentials) (*accessrequests.Requests, error) {
	proxy := c.cfg.ResourceProxy
	if credentials.issuer == nil || proxy.Credentials.PersonLife == 0 {
		return nil, nil
	}
	return accessrequests.New(accessrequests.Config{
		Client: c.base.Dynamic, Namespace: c.cfg.Namespace, Agent: c.agents.Agent,
		Sign: credentials.issuer.SignFor, Authorities: credentials.issuer.Authorities,
		ProxyURL: proxy.URL, PublicURL: proxy.PublicURL, MaxLifetime: proxy.Credentials.PersonLife,
		Metrics: c.base.Metrics, Log: c.base.Log,
	})
}
