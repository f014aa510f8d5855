package principalconfig

import (
	"math"
	"strings"
	"testing"
)

func TestLimitsValidate(t *testing.T) {
	const mib = 1 << 20
	for what, c := range map[string]struct {
		limits  Limits
		problem string // empty for none
	}{
		"the default":                          {limits: DefaultLimits()},
		"just below three quarters":            {limits: Limits{BytesPerSecond: mib, BytesBurst: 167 * mib, EtcdQuota: 1024 * mib}},
		"three quarters":                       {limits: Limits{BytesPerSecond: mib, BytesBurst: 168 * mib, EtcdQuota: 1024 * mib}, problem: "etcd_quota"},
		"a burst beyond the quota":             {limits: Limits{BytesPerSecond: mib, BytesBurst: 4096 * mib, EtcdQuota: 2048 * mib}, problem: "etcd_quota"},
		"a rate that no product holds":         {limits: Limits{BytesPerSecond: math.MaxInt64, BytesBurst: mib, EtcdQuota: 8192 * mib}, problem: "etcd_quota"},
		"a large hub with an etcd of its size": {limits: Limits{BytesPerSecond: 8 * mib, BytesBurst: 1024 * mib, EtcdQuota: 8192 * mib}},
		"no rate":                              {limits: Limits{BytesBurst: mib, EtcdQuota: 2048 * mib}, problem: "bytes_per_second"},
		"less than one object":                 {limits: Limits{BytesPerSecond: mib, BytesBurst: mib - 1, EtcdQuota: 2048 * mib}, problem: "bytes_burst"},
	} {
		err := c.limits.Validate()
		if (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s: Validate() = %v", what, err)
		}
	}
}
