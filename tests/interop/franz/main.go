// franz-go with the consumer protocol: three members of a group share six partitions, one leaves, nothing is lost.
package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	topic      = "franz"
	partitions = 6
	records    = 600
)

var (
	mutex     sync.Mutex
	owned     = map[int]map[int32]bool{}
	processed = map[string]bool{}
)

func change(member int, changed map[string][]int32, has bool) {
	mutex.Lock()
	defer mutex.Unlock()
	for _, partition := range changed[topic] {
		if has {
			owned[member][partition] = true
		} else {
			delete(owned[member], partition)
		}
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func member(number int, bootstrap string) *kgo.Client {
	owned[number] = map[int32]bool{}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup("franz"),
		kgo.ConsumeTopics(topic),
		kgo.Balancers(kgo.StickyBalancer()),
		kgo.ServerSideBalancer(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, gained map[string][]int32) { change(number, gained, true) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { change(number, lost, false) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { change(number, lost, false) }),
	)
	check(err)
	go func() {
		for {
			fetches := client.PollFetches(context.Background())
			if fetches.IsClientClosed() {
				return
			}
			fetches.EachRecord(func(record *kgo.Record) {
				mutex.Lock()
				processed[string(record.Value)] = true
				mutex.Unlock()
			})
		}
	}()
	return client
}

func until(what string, done func() bool) {
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		mutex.Lock()
		is := done()
		mutex.Unlock()
		if is {
			fmt.Println(what)
			return
		}
		if time.Now().After(end) {
			fmt.Fprintln(os.Stderr, what, owned, len(processed))
			os.Exit(1)
		}
	}
}

func shared(members ...int) func() bool {
	return func() bool {
		seen := map[int32]int{}
		for _, number := range members {
			if len(owned[number]) != partitions/len(members) {
				return false
			}
			for partition := range owned[number] {
				seen[partition]++
			}
		}
		return len(seen) == partitions
	}
}

func main() {
	bootstrap := os.Args[1]
	producer, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	check(err)
	for number := 0; number < records; number++ {
		value := fmt.Sprint(number)
		produced := producer.ProduceSync(context.Background(), &kgo.Record{Topic: topic, Partition: int32(number % partitions), Value: []byte(value)})
		check(produced.FirstErr())
	}
	clients := []*kgo.Client{member(0, bootstrap), member(1, bootstrap), member(2, bootstrap)}
	until("three share", shared(0, 1, 2))
	check(clients[0].CommitUncommittedOffsets(context.Background()))
	clients[0].Close()
	until("two share", shared(1, 2))
	until("all processed", func() bool { return len(processed) == records })
	clients[1].Close()
	clients[2].Close()
	producer.Close()
}
