// Package client is the agent's end of the stream: it dials, introduces itself,
// and keeps one connection up for as long as it runs. When our SVID was renewed
// it proves the new one on a new connection before the old one ends. What flows
// on a connection is Config.Serve's business.
//
//	c, err := client.New(client.Config{Target: "principal.example:443", …})
//	err = c.Run(ctx)
package client
