// What Spark's Kafka connector calls of spark-token-provider-kafka-0-10, for brokers without delegation tokens.
// Method names and types are those that the connector's class files refer to; nothing is secured in these runs, so
// each does what the original does when no token is configured.
package org.apache.spark.kafka010

import scala.jdk.CollectionConverters._

import org.apache.spark.SparkConf

/** The description of a secured cluster. There is none. */
class KafkaTokenClusterConf

/** Collects client properties. */
class KafkaConfigUpdater(module: String, start: Map[String, Object]) {
  private val properties = new java.util.HashMap[String, Object](start.asJava)

  def set(key: String, value: Object): KafkaConfigUpdater = { properties.put(key, value); this }
  def setIfUnset(key: String, value: Object): KafkaConfigUpdater = { properties.putIfAbsent(key, value); this }
  def setAuthenticationConfigIfNeeded(): KafkaConfigUpdater = this
  def setAuthenticationConfigIfNeeded(cluster: Option[KafkaTokenClusterConf]): KafkaConfigUpdater = this
  def build(): java.util.Map[String, Object] = properties
}

object KafkaConfigUpdater {
  def apply(module: String, start: Map[String, Object]): KafkaConfigUpdater = new KafkaConfigUpdater(module, start)
}

/** Hides secrets in log lines. There are none. */
object KafkaRedactionUtil {
  def redactParams(parameters: Seq[(String, Object)]): Seq[(String, Object)] = parameters
}

object KafkaTokenUtil {
  def findMatchingTokenClusterConfig(conf: SparkConf, servers: String): Option[KafkaTokenClusterConf] = None
  def needTokenUpdate(properties: java.util.Map[String, Object], cluster: Option[KafkaTokenClusterConf]): Boolean = false
}
