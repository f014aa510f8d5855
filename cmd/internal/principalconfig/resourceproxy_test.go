package principalconfig

import (
	"testing"
)

func TestResourceProxyValidate(t *testing.T) {
	if err := DefaultResourceProxy().Validate(); err != nil {
		t.Errorf("the default: %v", err)
	}
	for what, change := range map[string]func(*ResourceProxy){
		"a routable address": func(p *ResourceProxy) { p.Listen = ":9090" },
		"a loopback address": func(p *ResourceProxy) { p.Listen = "127.0.0.1:9090" },
		"a relative path":    func(p *ResourceProxy) { p.Listen = "unix://proxy.sock" },
		"no calls":           func(p *ResourceProxy) { p.MaxCalls = 0 },
		"no calls of one":    func(p *ResourceProxy) { p.MaxAgentCalls = 0 },
		"no memory":          func(p *ResourceProxy) { p.LastKnownBytes = 0 },
	} {
		p := DefaultResourceProxy()
		change(&p)
		if err := p.Validate(); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
	if err := (Audit{OTLPEndpoint: "http://collector"}).Validate(); err == nil {
		t.Error("a URL is taken for host:port")
	}
}
