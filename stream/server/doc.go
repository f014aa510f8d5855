// Package server is the principal's end of the stream: the gRPC service, who may
// call it, the handshake, and how long a connection may last. What flows on an
// admitted connection is Config.Serve's business.
//
//	s, err := server.New(server.Config{Credentials: source.ServerCredentials(log), …})
//	err = s.Run(ctx, listener)
package server
