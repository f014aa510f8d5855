// Package tunnel carries byte connections from a hub to services of its spokes, over
// gRPC streams that the agents opened. It owns the wire of one connection: its
// state is a pure channel, and [Conn] is that with a lock, clocks and a gRPC stream. What
// flows on a connection, and who may ask for one, is left to others.
//
// On the spoke an acceptor.Acceptor keeps spare streams open and hands each that is taken to
// the Handler of its service:
//
//	a, err := acceptor.New(acceptor.Config{
//		Target:   "principal.example:443",
//		Services: map[stream.Service]tunnel.Handler{stream.Redis: tunnel.Forward(dialRedis)}, …})
//	err = a.Run(ctx)
//
// On the hub a dialer.Dialer takes them. Its service is registered on the server of the
// sync stream, and callers come through the same gate:
//
//	d, err := dialer.New(dialer.Config{…})
//	server.New(server.Config{Register: d.Register, …})
//	conn, err := d.Dial(ctx, agent, stream.Kubernetes)
//
// A connection behaves as one over TCP: deadlines, CloseWrite, back-pressure. What
// TCP calls a reset has a reason here, and it, as well as a peer that is lost, is
// an error and never io.EOF.
package tunnel
