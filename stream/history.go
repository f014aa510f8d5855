package stream

import (
	"fmt"

	"github.com/argomesh/argomesh/stream/streampb"
)

// historyOf writes no history as none.
func historyOf(h History) *streampb.History {
	if h == (History{}) {
		return nil
	}
	return &streampb.History{Id: h.ID, Token: h.Token, Revision: h.Revision}
}

func parseHistory(pb *streampb.History) (History, error) {
	if len(pb.GetId()) > maxIDBytes || len(pb.GetToken()) > maxIDBytes {
		return History{}, fmt.Errorf("history of %d and %d bytes: %w", len(pb.GetId()), len(pb.GetToken()),
			ViolationMalformed.Err())
	}
	if !printable(pb.GetId()) || !printable(pb.GetToken()) {
		return History{}, fmt.Errorf("history %q and %q is not printable ascii: %w", pb.GetId(), pb.GetToken(),
			ViolationMalformed.Err())
	}
	return History{ID: pb.GetId(), Token: pb.GetToken(), Revision: pb.GetRevision()}, nil
}

func parseHistoryMessage(pb *streampb.History) (Message, error) {
	h, err := parseHistory(pb)
	if err != nil {
		return nil, err
	}
	return h, nil
}
